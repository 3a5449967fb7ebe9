from skep.analysis.grammars.operators import AND_OR, COMPARE

QUERY = f"""
(function_declaration name: (identifier) @function parameters: (_) @params) @fn
(method_declaration name: (field_identifier) @method parameters: (_) @params) @fn
(method_elem name: (field_identifier) @method)
(type_spec name: (type_identifier) @type)
(type_spec name: (type_identifier) @struct type: (struct_type))
(type_spec name: (type_identifier) @interface type: (interface_type))
(type_alias name: (type_identifier) @type)
(field_declaration name: (field_identifier) @field)
(source_file (const_declaration (const_spec name: (identifier) @constant)))
(source_file (var_declaration (var_spec name: (identifier) @variable)))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @variable))))
[(assignment_statement) (short_var_declaration) (inc_statement) (dec_statement)] @a (var_spec value: (_)) @a
(call_expression) @b
(binary_expression operator: {COMPARE}) @c (if_statement "else" @c) (default_case) @c
[(expression_case) (type_case) (communication_case)] @cd
[(if_statement) (for_statement)] @d (binary_expression operator: {AND_OR}) @d
(comment) @comment
"""
