from skep.analysis.grammars.operators import AND_OR, COMPARE

#: conditional compilation stands between a file and its declarations
_OUTSIDE = ("translation_unit", "preproc_ifdef", "preproc_if", "preproc_else")
_GLOBALS = "\n".join(
    f"""({outside} (declaration declarator: [
    (identifier) @variable (array_declarator declarator: (identifier) @variable)
    (init_declarator declarator: [(identifier) @variable (_ declarator: (identifier) @variable)])]))"""
    for outside in _OUTSIDE
)

_C_FAMILY = f"""{_GLOBALS}
(function_definition) @fn
(struct_specifier name: (type_identifier) @struct body: (_))
(union_specifier name: (type_identifier) @struct body: (_))
(enum_specifier name: (type_identifier) @enum body: (_))
(enumerator name: (identifier) @constant)
(field_declaration declarator: (field_identifier) @field)
(field_declaration declarator: (_ declarator: (field_identifier) @field))
(type_definition declarator: (type_identifier) @type)
(type_definition declarator: (_ declarator: (type_identifier) @type))
(type_definition declarator: (function_declarator declarator: (
    parenthesized_declarator (pointer_declarator declarator: (type_identifier) @type))))
(preproc_def name: (identifier) @macro)
(preproc_function_def name: (identifier) @macro)
[(assignment_expression) (update_expression)] @a (init_declarator value: (_)) @a
[(call_expression) (goto_statement)] @b
(binary_expression operator: {COMPARE}) @c (else_clause) @c
(case_statement "default") @c (case_statement "case") @cd (conditional_expression) @cd
[(if_statement) (for_statement) (while_statement) (do_statement)] @d
(binary_expression operator: {AND_OR}) @d
(comment) @comment
"""


def _declared(names: str, wrappers: tuple[str, ...]) -> str:
    """Functions by name, however many pointers and references they return."""
    inner = f"(function_declarator declarator: {names} parameters: (_) @params)"
    return "\n".join(f"(function_definition declarator: {wrapper.format(inner)})" for wrapper in wrappers)


_POINTERS = ("{}", "(pointer_declarator declarator: {})", "(pointer_declarator (pointer_declarator declarator: {}))")
C = _C_FAMILY + _declared("(identifier) @function", _POINTERS)
CPP = (
    _C_FAMILY
    + _declared(
        """[(identifier) @function (field_identifier) @method (destructor_name) @method (operator_name) @method
        (template_function name: (identifier) @function) (qualified_identifier name: [(identifier) @method
        (destructor_name) @method (operator_name) @method (template_function name: (identifier) @method)
        (qualified_identifier name: [(identifier) (destructor_name) (operator_name)] @method)])]""",
        (*_POINTERS, "(reference_declarator {})"),
    )
    + """
(class_specifier name: (type_identifier) @class body: (_))
(struct_specifier name: (template_type name: (type_identifier) @struct) body: (_))
(class_specifier name: (template_type name: (type_identifier) @class) body: (_))
(namespace_definition name: (namespace_identifier) @module)
(alias_declaration name: (type_identifier) @type)
(concept_definition name: (identifier) @type)
(new_expression) @b (catch_clause) @cd (for_range_loop) @d
"""
)
