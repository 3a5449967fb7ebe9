_SCRIPT = """
(function_declaration name: (identifier) @function parameters: (_) @params) @fn
(generator_function_declaration name: (identifier) @function parameters: (_) @params) @fn
(method_definition name: (_) @method parameters: (_) @params) @fn
(variable_declarator name: (identifier) @function value: [
    (arrow_function parameters: (_) @params) (function_expression parameters: (_) @params)]) @fn
(variable_declarator name: (identifier) @function value: (arrow_function parameter: (_) @params)) @fn
(assignment_expression left: (member_expression property: (property_identifier) @method) right: [
    (arrow_function parameters: (_) @params) (function_expression parameters: (_) @params)]) @fn
(pair key: (property_identifier) @method value: [
    (arrow_function parameters: (_) @params) (function_expression parameters: (_) @params)]) @fn
(program (lexical_declaration (variable_declarator name: (identifier) @variable)))
(program (variable_declaration (variable_declarator name: (identifier) @variable)))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @variable)))
[(assignment_expression) (augmented_assignment_expression) (update_expression)] @a (variable_declarator value: (_)) @a
[(call_expression) (new_expression)] @b
(binary_expression operator: ["==" "===" "!=" "!==" "<" ">" "<=" ">=" "in" "instanceof"]) @c
[(else_clause) (switch_default)] @c
[(ternary_expression) (switch_case) (catch_clause)] @cd
[(if_statement) (for_statement) (for_in_statement) (while_statement) (do_statement)] @d
(binary_expression operator: ["&&" "||" "??"]) @d
(comment) @comment
"""

JAVASCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (identifier) @class)
(field_definition property: (property_identifier) @field)
"""
)

TYPESCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (type_identifier) @class)
(abstract_class_declaration name: (type_identifier) @class)
(interface_declaration name: (type_identifier) @interface)
(type_alias_declaration name: (type_identifier) @type)
(enum_declaration name: (identifier) @enum)
(enum_body name: (property_identifier) @constant)
(enum_assignment name: (property_identifier) @constant)
(internal_module name: (identifier) @module)
(public_field_definition name: (property_identifier) @field)
(property_signature name: (property_identifier) @field)
(method_signature name: (property_identifier) @method)
(abstract_method_signature name: (property_identifier) @method)
(function_signature name: (identifier) @function)
"""
)
