"""What is looked for in the syntax tree of each language, as queries of tree-sitter.

Captures: the kinds of definition (on the name), `fn` and `params` of a function, `comment`, and what is counted in a
function (docs/analysis.md): `a` assignments, `b` branches, `c` conditions, `d` decisions, `cd` both of these.
"""

import importlib
from functools import cache
from typing import NamedTuple

from tree_sitter import Language, Query

_COMPARE = '["==" "!=" "<" ">" "<=" ">="]'
_AND_OR = '["&&" "||"]'

_PYTHON = """
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

_GO = f"""
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
(binary_expression operator: {_COMPARE}) @c (if_statement "else" @c) (default_case) @c
[(expression_case) (type_case) (communication_case)] @cd
[(if_statement) (for_statement)] @d (binary_expression operator: {_AND_OR}) @d
(comment) @comment
"""

_JAVA = f"""
(method_declaration name: (identifier) @method parameters: (_) @params) @fn
(constructor_declaration name: (identifier) @method parameters: (_) @params) @fn
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(annotation_type_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(enum_constant name: (identifier) @constant)
(field_declaration declarator: (variable_declarator name: (identifier) @field))
[(assignment_expression) (update_expression)] @a (variable_declarator value: (_)) @a
[(method_invocation) (object_creation_expression) (explicit_constructor_invocation)] @b
(binary_expression operator: {_COMPARE}) @c (instanceof_expression) @c
(if_statement "else" @c) (switch_label "default" @c)
(switch_label "case" @cd) [(ternary_expression) (catch_clause)] @cd
[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement)] @d
(binary_expression operator: {_AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""

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

_JAVASCRIPT = (
    _SCRIPT
    + """
(class_declaration name: (identifier) @class)
(field_definition property: (property_identifier) @field)
"""
)

_TYPESCRIPT = (
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
(binary_expression operator: {_COMPARE}) @c (else_clause) @c
(case_statement "default") @c (case_statement "case") @cd (conditional_expression) @cd
[(if_statement) (for_statement) (while_statement) (do_statement)] @d
(binary_expression operator: {_AND_OR}) @d
(comment) @comment
"""


def _declared(names: str, wrappers: tuple[str, ...]) -> str:
    """Functions by name, however many pointers and references they return."""
    inner = f"(function_declarator declarator: {names} parameters: (_) @params)"
    return "\n".join(f"(function_definition declarator: {wrapper.format(inner)})" for wrapper in wrappers)


_POINTERS = ("{}", "(pointer_declarator declarator: {})", "(pointer_declarator (pointer_declarator declarator: {}))")
_C = _C_FAMILY + _declared("(identifier) @function", _POINTERS)
_CPP = (
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

_RUST = f"""
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
(binary_expression operator: {_COMPARE}) @c (else_clause) @c
[(match_arm) (try_expression)] @cd
[(if_expression) (while_expression) (for_expression)] @d (binary_expression operator: {_AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""


class Grammar(NamedTuple):
    module: str
    query: str
    function: str = "language"


GRAMMARS = {
    "Python": Grammar("tree_sitter_python", _PYTHON),
    "Go": Grammar("tree_sitter_go", _GO),
    "Java": Grammar("tree_sitter_java", _JAVA),
    "JavaScript": Grammar("tree_sitter_javascript", _JAVASCRIPT),
    "TypeScript": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_typescript"),
    "TSX": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_tsx"),
    "C": Grammar("tree_sitter_c", _C),
    "C++": Grammar("tree_sitter_cpp", _CPP),
    "Rust": Grammar("tree_sitter_rust", _RUST),
}


@cache
def load(name: str) -> tuple[Language, Query]:
    grammar = GRAMMARS[name]
    language = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return language, Query(language, grammar.query)
