from skep.analysis.grammars.operators import AND_OR, COMPARE

QUERY = f"""
(function_item name: (identifier) @function parameters: (_) @params) @fn
(function_signature_item name: (identifier) @method)
(impl_item body: (declaration_list (function_item name: (identifier) @method)))
(trait_item body: (declaration_list (function_item name: (identifier) @method)))
(struct_item name: (type_identifier) @struct)
(union_item name: (type_identifier) @struct)
(enum_item name: (type_identifier) @enum)
(enum_variant name: (identifier) @constant)
(trait_item name: (type_identifier) @interface)
(type_item name: (type_identifier) @type)
(mod_item name: (identifier) @module)
(macro_definition name: (identifier) @macro)
(const_item name: (identifier) @constant)
(static_item name: (identifier) @variable)
(field_declaration name: (field_identifier) @field)
(let_declaration value: (_)) @a [(assignment_expression) (compound_assignment_expr)] @a
[(call_expression) (macro_invocation)] @b
(binary_expression operator: {COMPARE}) @c (else_clause) @c
[(match_arm) (try_expression)] @cd
[(if_expression) (while_expression) (for_expression)] @d (binary_expression operator: {AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""
