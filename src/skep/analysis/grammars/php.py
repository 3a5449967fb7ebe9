QUERY = """
(function_definition name: (name) @function parameters: (_) @params) @fn
(method_declaration name: (name) @method parameters: (_) @params) @fn
(class_declaration name: (name) @class)
(interface_declaration name: (name) @interface)
(trait_declaration name: (name) @interface)
(enum_declaration name: (name) @enum)
(enum_case name: (name) @constant)
(const_element . (name) @constant)
(property_element name: (variable_name (name) @field))
(property_promotion_parameter name: (variable_name (name) @field))
(namespace_definition name: (namespace_name) @module)
(program (expression_statement (assignment_expression left: (variable_name (name) @variable))))
[(assignment_expression) (augmented_assignment_expression) (reference_assignment_expression) (update_expression)] @a
[(function_call_expression) (member_call_expression) (nullsafe_member_call_expression) (scoped_call_expression)
    (object_creation_expression) (goto_statement)] @b
(binary_expression operator: ["==" "===" "!=" "!==" "<>" "<" ">" "<=" ">=" "<=>" "instanceof"]) @c
[(else_clause) (default_statement) (match_default_expression)] @c
[(else_if_clause) (case_statement) (match_conditional_expression) (catch_clause) (conditional_expression)] @cd
[(if_statement) (for_statement) (foreach_statement) (while_statement) (do_statement)] @d
(binary_expression operator: ["&&" "||" "and" "or" "??"]) @d
(comment) @comment
"""
