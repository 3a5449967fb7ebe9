from skep.analysis.grammars.operators import AND_OR, COMPARE

QUERY = f"""
(method_declaration name: (identifier) @method parameters: (_) @params) @fn
(constructor_declaration name: (identifier) @method parameters: (_) @params) @fn
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(annotation_type_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(enum_constant name: (identifier) @constant)
(field_declaration declarator: (variable_declarator name: (identifier) @field))
[(assignment_expression) (update_expression)] @a (variable_declarator value: (_)) @a
[(method_invocation) (object_creation_expression) (explicit_constructor_invocation)] @b
(binary_expression operator: {COMPARE}) @c (instanceof_expression) @c
(if_statement "else" @c) (switch_label "default" @c)
(switch_label "case" @cd) [(ternary_expression) (catch_clause)] @cd
[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement)] @d
(binary_expression operator: {AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""
