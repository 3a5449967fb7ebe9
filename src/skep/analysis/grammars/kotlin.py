QUERY = r"""
(function_declaration name: (identifier) @function (function_value_parameters) @params) @fn
(class_body (function_declaration name: (identifier) @method))
(enum_class_body (function_declaration name: (identifier) @method))
(class_declaration . "class" name: (identifier) @class)
((class_declaration . (modifiers) @_all "class" name: (identifier) @class) (#not-match? @_all "\\benum\\b"))
(class_declaration "interface" name: (identifier) @interface)
(class_declaration name: (identifier) @enum (enum_class_body))
(object_declaration name: (identifier) @class)
(enum_entry (identifier) @constant)
(type_alias type: (identifier) @type)
(property_declaration (modifiers (property_modifier "const")) (variable_declaration (identifier) @constant))
(class_body (property_declaration (variable_declaration (identifier) @field)))
(class_parameter ["val" "var"] (identifier) @field)
(source_file (property_declaration (variable_declaration (identifier) @variable)))
(assignment) @a (property_declaration "=") @a (unary_expression operator: ["++" "--"]) @a
[(call_expression) (constructor_delegation_call)] @b
(binary_expression operator: ["==" "===" "!=" "!==" "<" ">" "<=" ">="]) @c [(is_expression) (in_expression)] @c
(if_expression "else" @c) (when_entry "else" @c)
(when_entry . condition: (_)) @cd (catch_block) @cd
[(if_expression) (for_statement) (while_statement) (do_while_statement)] @d
(binary_expression operator: ["&&" "||" "?:"]) @d
[(line_comment) (block_comment)] @comment
"""
