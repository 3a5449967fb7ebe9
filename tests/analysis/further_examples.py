"""As in examples.py, for further languages."""

from skep.languages.blob_facts import Function
from tests.analysis.examples import Example

EXAMPLES: dict[str, Example] = {
    "a.rb": (
        """\
LIMIT = 3
module Kitchen
  class Tea::Pot < Base
    attr_reader :size, :left
    private def brew = 1
    alias_method :steep, :brew
    def fill(tea, sugar: nil, *cups)
      left = LIMIT
      while left > 0 && tea
        if left == 2 then left -= 1
        elsif sugar then left = 0
        else pour(left)
        end
      end
      case tea
      when :green then steep(tea)
      else puts "none" unless cups
      end
      cups.each { |cup| print cup if cup }
    rescue Dry
      sugar ? 1 : 2
    end
    def self.make = new
  end
end
def main; end
""",
        [
            ("LIMIT", "constant"), ("Kitchen", "module"), ("Pot", "class"), ("size", "field"), ("left", "field"),
            ("brew", "method"), ("steep", "method"), ("fill", "method"),
            ("make", "method"), ("main", "function"),
        ],
        # left= -= left=; pour steep puts each print; > == elsif else when else rescue ?:
        # while && if elsif when unless if rescue ?:
        Function("fill", 7, 16, 3, 3, 5, 8, 10),
    ),
    "a.php": (
        """\
<?php
namespace Tea;
const LIMIT = 3;
$total = 0;
interface Filler { public function fill($tea); }
trait Hot { }
enum Leaf { case Green; }
class Pot extends Base
{
    const MOST = LIMIT;
    private int $size = 0;
    public function __construct(private string $name) { }
    public function fill($tea, ?string $sugar = null, ...$cups)
    {
        $left = self::MOST;
        for ($i = 0; $i < $left; $i++) {
            if ($i === 2 && $tea) { $left -= 1; }
            elseif ($sugar) { $left = 0; }
            else { $this->pour($i); }
        }
        foreach ($cups as $cup) { print_r($cup ?? new Cup()); }
        switch ($left) { case 1: break; default: Pot::make(); }
        $x = match (true) { $left == 1 => 2, default => 3 };
        try { brew(); } catch (Dry $e) { return $x ? 1 : 2; }
    }
}
function make() { return fn($x) => $x; }
""",
        [
            ("Tea", "module"), ("LIMIT", "constant"), ("total", "variable"), ("Filler", "interface"),
            ("fill", "method"), ("Hot", "interface"), ("Leaf", "enum"), ("Green", "constant"), ("Pot", "class"),
            ("MOST", "constant"), ("size", "field"), ("__construct", "method"), ("name", "field"), ("fill", "method"),
            ("make", "function"),
        ],
        # left= i= i++ -= left= x=; pour print_r new make brew; < === elseif else case default == => default catch ?:
        # for if && elseif foreach ?? case => catch ?:
        Function("fill", 13, 13, 3, 6, 5, 11, 11),
    ),
    "a.cs": (
        """\
namespace Tea.Kitchen {
interface IFiller { int Fill(string tea); }
enum Leaf { Green, Black }
struct Cup { public int Size; }
record Sugar(string Name);
delegate void Poured(int n);
class Pot : Base, IFiller
{
    const int Limit = 3;
    public int Left { get; set; }
    public Pot(int left) : base(left) { Left = left; }
    public int Fill(string tea, int sugar = 0, params int[] cups)
    {
        var left = Limit;
        for (int i = 0; i < left; i++)
            if (i == 2 && tea is null) left -= 1;
            else Pour(i);
        foreach (var cup in cups) { new Cup(); }
        switch (left) { case 1: break; default: Pour(2); break; }
        var x = left switch { 1 => 2, _ => 3 };
        try { Brew(); } catch (Dry e) { return left > 1 ? 1 : 2; }
        return x ?? Local(1);
        int Local(int a) { return a; }
    }
}
}
""",
        [
            ("Tea.Kitchen", "module"), ("IFiller", "interface"), ("Fill", "method"), ("Leaf", "enum"),
            ("Green", "constant"), ("Black", "constant"), ("Cup", "struct"), ("Size", "field"), ("Sugar", "class"),
            ("Poured", "type"), ("Pot", "class"), ("Limit", "field"), ("Left", "field"), ("Pot", "method"),
            ("Fill", "method"), ("Local", "function"),
        ],
        # left= i= i++ -= x=; Pour new Pour Brew Local; < == is else case default and two arms, catch > ?:
        # for if && foreach case and two arms, catch ?: ??
        Function("Fill", 12, 13, 3, 5, 5, 11, 11),
    ),
    "a.kt": (
        """\
package tea
const val LIMIT = 3
typealias Leaf = String
interface Filler { fun fill(tea: String): Int }
private enum class Kind { GREEN, BLACK; fun mix() = 1 }
object Shelf { }
open class Pot(val size: Int, cups: Int) : Base() {
    var left: Int = 0
    override fun fill(tea: String, sugar: Int = 0, vararg cups: Int): Int {
        var left = LIMIT
        for (cup in cups) {
            if (cup == 2 && tea is Leaf) { left -= 1 } else { pour(cup) }
        }
        while (left > 0) { left-- }
        val x = when (left) {
            1, 2 -> 2
            else -> 3
        }
        try { brew() } catch (e: Dry) { return x ?: 4 }
        return cups.map { it + 1 }.first()
    }
}
fun make(): Pot = Pot(1)
""",
        [
            ("LIMIT", "constant"), ("Leaf", "type"), ("Filler", "interface"), ("fill", "method"), ("Kind", "enum"),
            ("GREEN", "constant"), ("BLACK", "constant"), ("mix", "method"), ("Shelf", "class"), ("Pot", "class"),
            ("size", "field"), ("left", "field"), ("fill", "method"), ("make", "function"),
        ],
        # left= -= left-- x=; pour brew map first; == is else > 1,2-> else catch; for if && while 1,2-> catch ?:
        Function("fill", 9, 13, 3, 4, 4, 7, 8),
    ),
    "a.scala": (
        """\
package tea
trait Filler { def fill(tea: String): Int }
object Shelf { val Most = 3 }
enum Leaf { case Green, Black }
type Name = String
case class Pot(size: Int) extends Base with Filler {
  private var left: Int = 0
  def fill(tea: String, sugar: Int = 0): Int = {
    var left = Shelf.Most
    for (i <- 0 to left if i > 1) {
      if (i == 2 && tea != "") { left -= 1 } else { pour(i) }
    }
    while (left > 0) { left = left - 1 }
    val x = left match {
      case 1 => 2
      case _ => 3
    }
    try { brew() } catch { case e: Dry => new Cup() }
    x
  }
}
def make = 1
val total = 2
""",
        [
            ("Filler", "interface"), ("fill", "method"), ("Shelf", "class"), ("Most", "field"), ("Leaf", "enum"),
            ("Green", "constant"), ("Black", "constant"), ("Name", "type"), ("Pot", "class"), ("left", "field"),
            ("fill", "method"), ("make", "function"), ("total", "variable"),
        ],
        # left= -= left= x=; pour brew new; > == != else > and three cases; for its if, if && while and three cases
        Function("fill", 8, 13, 2, 4, 3, 8, 9),
    ),
    "a.sh": (
        """\
#!/bin/bash
LIMIT=3
export SIZE=5
fill() {
  local left=$LIMIT
  for cup in "$@"; do
    if [ "$cup" = 2 ] && [[ -n $left ]]; then
      pour "$cup"
    elif ((left > 4)); then
      left=0
    else
      echo none || exit
    fi
  done
  while read -r line; do :; done
  case $left in
    1) steep ;;
    *) [ "$left" -eq 2 ] ;;
  esac
}
function make { fill; }
""",
        [("LIMIT", "variable"), ("SIZE", "variable"), ("fill", "function"), ("make", "function")],
        # left= left=; pour echo exit read : steep; = -n elif > else and two patterns, -eq
        # for if && elif || while and two patterns
        Function("fill", 4, 17, 0, 2, 6, 8, 9),
    ),
}  # fmt: skip
