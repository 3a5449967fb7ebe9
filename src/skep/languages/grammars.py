"""What is looked for in the syntax tree of each language, as queries of tree-sitter.

Captures: the kinds of definition (on the name), `fn` and `params` of a function, `comment`, and what is counted in a
function (docs/analysis.md): `a` assignments, `b` branches, `c` conditions, `d` decisions, `cd` both of these. Of a name
that is several kinds the first of `KINDS` is told.
"""

import importlib
from functools import cache
from typing import NamedTuple

from tree_sitter import Language, Query

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


# What most languages write alike.

COMPARE = '["==" "!=" "<" ">" "<=" ">="]'
AND_OR = '["&&" "||"]'


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


CSHARP_QUERY = f"""
(method_declaration name: (identifier) @method parameters: (_) @params) @fn
(constructor_declaration name: (identifier) @method parameters: (_) @params) @fn
(local_function_statement name: (identifier) @function parameters: (_) @params) @fn
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(struct_declaration name: (identifier) @struct)
(interface_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(enum_member_declaration name: (identifier) @constant)
(delegate_declaration name: (identifier) @type)
(field_declaration (variable_declaration (variable_declarator name: (identifier) @field)))
(event_field_declaration (variable_declaration (variable_declarator name: (identifier) @field)))
(property_declaration name: (identifier) @field)
(namespace_declaration name: (_) @module)
(file_scoped_namespace_declaration name: (_) @module)
(assignment_expression) @a (variable_declarator "=") @a
(postfix_unary_expression ["++" "--"]) @a (prefix_unary_expression ["++" "--"]) @a
[(invocation_expression) (object_creation_expression) (implicit_object_creation_expression)
    (constructor_initializer) (goto_statement)] @b
(binary_expression operator: {COMPARE}) @c [(is_expression) (is_pattern_expression)] @c
(if_statement "else" @c) (switch_section "default" @c)
(switch_section "case" @cd) [(switch_expression_arm) (catch_clause) (conditional_expression)] @cd
[(if_statement) (for_statement) (foreach_statement) (while_statement) (do_statement)] @d
(binary_expression operator: ["&&" "||" "??"]) @d
(comment) @comment
"""


GO_QUERY = f"""
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


JAVA_QUERY = f"""
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
(binary_expression operator: {COMPARE}) @c (instanceof_expression) @c
(if_statement "else" @c) (switch_label "default" @c)
(switch_label "case" @cd) [(ternary_expression) (catch_clause)] @cd
[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement)] @d
(binary_expression operator: {AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""


PHP_QUERY = """
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


PYTHON_QUERY = """
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


RUBY_QUERY = r"""
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


RUST_QUERY = f"""
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
(binary_expression operator: {COMPARE}) @c (else_clause) @c
[(match_arm) (try_expression)] @cd
[(if_expression) (while_expression) (for_expression)] @d (binary_expression operator: {AND_OR}) @d
[(line_comment) (block_comment)] @comment
"""


#: its operators are names like any other
_INFIX = "(infix_expression operator: (_) @_operator)"

SCALA_QUERY = rf"""
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


SHELL_QUERY = """
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


class Grammar(NamedTuple):
    module: str
    query: str
    function: str = "language"


GRAMMARS = {
    "Python": Grammar("tree_sitter_python", PYTHON_QUERY),
    "Go": Grammar("tree_sitter_go", GO_QUERY),
    "Java": Grammar("tree_sitter_java", JAVA_QUERY),
    "JavaScript": Grammar("tree_sitter_javascript", JAVASCRIPT),
    "TypeScript": Grammar("tree_sitter_typescript", TYPESCRIPT, "language_typescript"),
    "TSX": Grammar("tree_sitter_typescript", TYPESCRIPT, "language_tsx"),
    "C": Grammar("tree_sitter_c", C),
    "C++": Grammar("tree_sitter_cpp", CPP),
    "Rust": Grammar("tree_sitter_rust", RUST_QUERY),
    "Ruby": Grammar("tree_sitter_ruby", RUBY_QUERY),
    "PHP": Grammar("tree_sitter_php", PHP_QUERY, "language_php"),
    "C#": Grammar("tree_sitter_c_sharp", CSHARP_QUERY),
    "Kotlin": Grammar("tree_sitter_kotlin", QUERY),
    "Scala": Grammar("tree_sitter_scala", SCALA_QUERY),
    "Shell": Grammar("tree_sitter_bash", SHELL_QUERY),
}


@cache
def load(name: str) -> tuple[Language, Query]:
    grammar = GRAMMARS[name]
    language = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return language, Query(language, grammar.query)
