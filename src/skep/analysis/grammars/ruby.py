QUERY = r"""
(method name: (_) @function) @fn
(singleton_method name: (_) @method) @fn
(class body: (body_statement (method name: (_) @method)))
(module body: (body_statement (method name: (_) @method)))
(singleton_class body: (body_statement (method name: (_) @method)))
(argument_list (method name: (_) @method))
(alias name: (_) @method)
((call method: (identifier) @_word arguments: (argument_list (simple_symbol) @field))
    (#match? @_word "^attr_(accessor|reader|writer)$"))
((call method: (identifier) @_word arguments: (argument_list . (simple_symbol) @method)) (#eq? @_word "alias_method"))
(method parameters: (_) @params) (singleton_method parameters: (_) @params)
(class name: [(constant) @class (scope_resolution name: (constant) @class)])
(module name: [(constant) @module (scope_resolution name: (constant) @module)])
(assignment left: (constant) @constant)
[(assignment) (operator_assignment)] @a
[(call) (yield)] @b
(binary operator: ["==" "!=" "<" ">" "<=" ">=" "===" "<=>" "=~" "!~"]) @c (else) @c
[(elsif) (when) (in_clause) (conditional) (rescue) (rescue_modifier)] @cd
[(if) (unless) (while) (until) (for) (if_modifier) (unless_modifier) (while_modifier) (until_modifier)] @d
(binary operator: ["&&" "||" "and" "or"]) @d
(comment) @comment
"""
