QUERY = """
(function_definition name: (word) @function) @fn
(program (variable_assignment name: (variable_name) @variable))
(program (declaration_command (variable_assignment name: (variable_name) @variable)))
(variable_assignment) @a
(command) @b
(binary_expression operator: ["=" "==" "!=" "<" ">" "<=" ">=" "=~"]) @c
(binary_expression operator: (test_operator)) @c (unary_expression operator: (test_operator)) @c
(else_clause) @c
[(elif_clause) (case_item)] @cd
[(if_statement) (for_statement) (c_style_for_statement) (while_statement)] @d
(list ["&&" "||"] @d) (binary_expression operator: ["&&" "||"]) @d
(comment) @comment
"""
