#: its operators are names like any other
_INFIX = "(infix_expression operator: (_) @_operator)"

QUERY = rf"""
(function_definition name: (_) @function) @fn
(function_declaration name: (_) @method)
(template_body (function_definition name: (_) @method))
(enum_body (function_definition name: (_) @method))
(function_definition parameters: (parameters) @params)
(class_definition name: (_) @class)
(object_definition name: (_) @class)
(trait_definition name: (_) @interface)
(enum_definition name: (_) @enum)
(simple_enum_case name: (_) @constant)
(full_enum_case name: (_) @constant)
(type_definition name: (_) @type)
(template_body [(val_definition pattern: (identifier) @field) (var_definition pattern: (identifier) @field)])
(compilation_unit [(val_definition pattern: (identifier) @variable) (var_definition pattern: (identifier) @variable)])
[(assignment_expression) (val_definition) (var_definition)] @a
({_INFIX} @a (#match? @_operator "^[-+*/%&|^:]+=$"))
[(call_expression) (instance_expression)] @b
({_INFIX} @c (#any-of? @_operator "==" "!=" "<" ">" "<=" ">=" "eq" "ne"))
(if_expression "else" @c)
(case_clause) @cd
[(if_expression) (for_expression) (while_expression) (do_while_expression) (guard)] @d
({_INFIX} @d (#any-of? @_operator "&&" "||"))
[(comment) (block_comment)] @comment
"""
