from skep.analysis.grammars.operators import COMPARE

QUERY = f"""
(method_declaration name: (identifier) @method parameters: (_) @params) @fn
(constructor_declaration name: (identifier) @method parameters: (_) @params) @fn
(local_function_statement name: (identifier) @function parameters: (_) @params) @fn
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(struct_declaration name: (identifier) @struct)
(interface_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(enum_member_declaration name: (identifier) @constant)
(delegate_declaration name: (identifier) @type)
(field_declaration (variable_declaration (variable_declarator name: (identifier) @field)))
(event_field_declaration (variable_declaration (variable_declarator name: (identifier) @field)))
(property_declaration name: (identifier) @field)
(namespace_declaration name: (_) @module)
(file_scoped_namespace_declaration name: (_) @module)
(assignment_expression) @a (variable_declarator "=") @a
(postfix_unary_expression ["++" "--"]) @a (prefix_unary_expression ["++" "--"]) @a
[(invocation_expression) (object_creation_expression) (implicit_object_creation_expression)
    (constructor_initializer) (goto_statement)] @b
(binary_expression operator: {COMPARE}) @c [(is_expression) (is_pattern_expression)] @c
(if_statement "else" @c) (switch_section "default" @c)
(switch_section "case" @cd) [(switch_expression_arm) (catch_clause) (conditional_expression)] @cd
[(if_statement) (for_statement) (foreach_statement) (while_statement) (do_statement)] @d
(binary_expression operator: ["&&" "||" "??"]) @d
(comment) @comment
"""
