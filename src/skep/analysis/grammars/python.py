QUERY = """
(function_definition name: (identifier) @function parameters: (_) @params) @fn
(class_definition name: (identifier) @class)
(class_definition body: (block (function_definition name: (identifier) @method)))
(class_definition body: (block (decorated_definition definition: (function_definition name: (identifier) @method))))
(class_definition body: (block (expression_statement (assignment left: (identifier) @field))))
(module (expression_statement (assignment left: (identifier) @variable)))
(type_alias_statement left: (type (identifier) @type))
(assignment right: (_)) @a (augmented_assignment) @a (named_expression) @a
(call) @b
(comparison_operator) @c (else_clause) @c
[(elif_clause) (conditional_expression) (except_clause) (case_clause)] @cd
[(if_statement) (for_statement) (while_statement) (for_in_clause) (if_clause) (boolean_operator)] @d
(comment) @comment
"""
