"""The languages Skep knows, one line each: name | aliases | extensions | file names | interpreters | comments.

`comments` is how a line of comment begins; a language may have several. An extension that stands in several lines is
settled by `language.py`; without a reason for another, the first line wins.
"""

from typing import NamedTuple

_TABLE = """
Ada | ada95 | .adb .ads | | | --
Assembly | asm nasm | .s .asm .nasm | | | # ; //
AsciiDoc | | .adoc .asciidoc | | | //
AWK | | .awk | | awk gawk mawk | #
Batchfile | bat cmd | .bat .cmd | | | rem :: REM
BibTeX | | .bib | | | %
C | | .c .h .idc | | tcc | // /* *
C# | csharp cs | .cs .csx | | | // /* *
C++ | cpp cplusplus cxx | .cpp .cc .cxx .c++ .hpp .hh .hxx .h++ .ipp .tcc .inl .h | | | // /* *
Clojure | clj | .clj .cljs .cljc .edn | | bb | ;
CMake | | .cmake | CMakeLists.txt | | #
COBOL | | .cob .cbl .cpy | | | *
CoffeeScript | coffee | .coffee | Cakefile | coffee | #
Common Lisp | lisp | .lisp .lsp .asd | | sbcl | ;
Crystal | | .cr | | crystal | #
CSS | | .css | | | /* *
CSV | tsv | .csv .tsv | | |
CUDA | | .cu .cuh | | | // /* *
D | dlang | .d .di | | rdmd | // /* * +
Dart | | .dart | | dart | // /* *
Diff | patch | .diff .patch | | |
Dockerfile | docker containerfile | .dockerfile | Dockerfile Containerfile | | #
Elixir | | .ex .exs | | elixir | #
Elm | | .elm | | | --
Emacs Lisp | elisp | .el | .emacs | | ;
Erlang | | .erl .hrl | rebar.config | escript | %
F# | fsharp fs | .fs .fsi .fsx | | | // (*
Forth | | .forth .4th .fth | | | \\\\ (
Fortran | | .f .for .f77 .f90 .f95 .f03 .f08 | | | ! c C
Go | golang | .go | | | // /* *
Go Module | gomod | | go.mod go.sum go.work | | //
Gradle | | .gradle | | | // /* *
GraphQL | gql | .graphql .gql | | | #
Groovy | | .groovy | Jenkinsfile | groovy | // /* *
Haskell | hs | .hs .lhs | | runhaskell runghc | --
HCL | terraform tf | .tf .tfvars .hcl | | | # //
HTML | xhtml | .html .htm .xhtml | | | <!--
INI | cfg conf | .ini .cfg .conf .properties .editorconfig .desktop .service | .gitconfig .editorconfig .npmrc | | # ;
Java | | .java | | | // /* *
JavaScript | js node jsx | .js .mjs .cjs .jsx | Jakefile | node nodejs deno bun | // /* *
Jinja | jinja2 | .jinja .jinja2 .j2 | | | {#
JSON | | .json .jsonl .ndjson .json5 .jsonc .geojson .webmanifest | composer.lock Pipfile.lock .babelrc .eslintrc | | //
Julia | jl | .jl | | julia | #
Jupyter Notebook | ipynb | .ipynb | | |
Kconfig | | | Kconfig | | #
Kotlin | kt | .kt .kts | | | // /* *
Less | | .less | | | // /* *
Linker Script | ld | .ld .lds | | | /* *
Lua | | .lua | | lua luajit | --
Makefile | make mk | .mk .mak | Makefile makefile GNUmakefile Kbuild BSDmakefile | make | #
Markdown | md | .md .markdown .mdx .mkd | | |
MATLAB | octave | .m | | octave | %
Meson | | | meson.build meson_options.txt | | #
Nim | | .nim .nims .nimble | | nim | #
Nix | | .nix | | | #
Objective-C | objc objectivec | .m .h | | | // /* *
Objective-C++ | objcpp | .mm | | | // /* *
OCaml | ml | .ml .mli .mll .mly | | ocaml | (*
Pascal | delphi | .pas .dpr .pp .lpr | | | // { (*
Perl | pl | .pl .pm .t .pod | cpanfile | perl | #
PHP | | .php .phtml .php5 .inc | | php | // # /* *
PowerShell | ps1 pwsh | .ps1 .psm1 .psd1 | | pwsh | #
Prolog | | .pl .pro .prolog | | swipl | %
Protocol Buffer | proto protobuf | .proto | | | // /* *
Puppet | | .pp | Puppetfile | | #
Python | py python3 | .py .pyi .pyw .pyx .pxd .bzl | SConstruct SConscript BUILD WORKSPACE wscript | python pypy | #
R | rlang | .r .rmd | .Rprofile | Rscript | #
Racket | rkt | .rkt .rktd | | racket | ;
reStructuredText | rst rest | .rst .rest | | | ..
Roff | man troff | .1 .2 .3 .4 .5 .6 .7 .8 .man .roff .ms | | | .\\" '\\"
Ruby | rb | .rb .rake .gemspec .ru .podspec | Rakefile Gemfile Guardfile Vagrantfile Podfile Brewfile | ruby jruby | #
Rust | rs | .rs | | | // /* *
Sass | scss | .scss .sass | | | // /* *
Scala | | .scala .sc .sbt | | scala | // /* *
Scheme | scm | .scm .ss .sld | | guile chibi-scheme | ;
Shell | sh bash zsh ksh shellscript | .sh .bash .zsh .ksh .bats .fish | \
.bashrc .zshrc .profile PKGBUILD APKBUILD | sh bash dash zsh ksh fish | #
Smarty | | .tpl | | | {*
Solidity | sol | .sol | | | // /* *
SQL | | .sql .ddl .dml .psql | | | -- /* *
Starlark | bazel | .star | | | #
Svelte | | .svelte | | | // <!--
SVG | | .svg | | | <!--
Swift | | .swift | | swift | // /* *
SystemVerilog | | .sv .svh | | | // /* *
Tcl | | .tcl .tk .exp | | tclsh wish expect | #
TeX | latex | .tex .sty .cls .ltx | | | %
Text | txt plain | .txt .text | README COPYING LICENSE LICENCE NOTICE AUTHORS CHANGES ChangeLog MAINTAINERS | |
Thrift | | .thrift | | | // # /* *
TOML | | .toml | Cargo.lock poetry.lock uv.lock Pipfile | | #
TypeScript | ts tsx | .ts .mts .cts .tsx | | ts-node | // /* *
Vala | | .vala .vapi | | | // /* *
VBA | vb visualbasic | .vb .vbs .bas | | | '
Verilog | | .v .vh | | | // /* *
VHDL | | .vhd .vhdl | | | --
Vim Script | vim viml | .vim | .vimrc | | "
Vue | | .vue | | | // <!--
WebAssembly | wasm wat | .wat .wast | | | ;;
XML | | .xml .xsd .xsl .xslt .wsdl .plist .xaml .csproj .pom .rss .atom .ui .ts | | | <!--
YAML | yml | .yaml .yml | .clang-format .clang-tidy | | #
Zig | | .zig | | | //
"""


class Language(NamedTuple):
    name: str
    aliases: tuple[str, ...]
    extensions: tuple[str, ...]
    files: tuple[str, ...]
    interpreters: tuple[str, ...]
    #: how a line of comment begins
    comments: tuple[str, ...]


def _line(line: str) -> Language:
    name, *lists = line.split("|")
    aliases, extensions, files, interpreters, comments = (tuple(one.split()) for one in lists)
    return Language(name.strip(), aliases, extensions, files, interpreters, comments)


LANGUAGES = {language.name: language for language in map(_line, _TABLE.strip().splitlines())}
