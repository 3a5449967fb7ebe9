"""One small function of each language, counted by hand. The sum is in docs/analysis.md."""

from skep.languages.blob_facts import Function

#: path: text, definitions and their kinds, a function
Example = tuple[str, list[tuple[str, str]], Function]

# each counts a = assignments, b = branches, c = conditions, and decisions + 1
EXAMPLES: dict[str, Example] = {
    "a.py": (
        """\
LIMIT = 3

class Pot(Base):
    size: int = 0

    def fill(self, tea, *, sugar=None):
        left = LIMIT
        for cup in range(left):
            if cup == 2 and tea:
                left -= 1
            elif cup > 4:
                left = 0
            else:
                self.pour(cup)
        return [print(c) for c in tea if c]
""",
        [("LIMIT", "variable"), ("Pot", "class"), ("size", "field"), ("fill", "method")],
        # 3 x =, calls range pour print; conditions == > elif else; decisions for if and elif, the list's for and if
        Function("fill", 6, 10, 3, 3, 3, 4, 7),
    ),
    "a.go": (
        """\
package pot

const Limit = 3

type Pot struct{ Size, Left int }

type Filler interface{ Fill(tea string) error }

func (p *Pot) Fill(tea, sugar string, cups ...int) error {
	n := len(cups)
	for i := 0; i < n; i++ {
		switch {
		case i == 2 && tea != "":
			p.Left--
		default:
			pour(i)
		}
	}
	if n > 3 {
		return nil
	} else {
		return fail()
	}
}
""",
        [
            ("Limit", "constant"), ("Pot", "struct"), ("Size", "field"), ("Left", "field"), ("Filler", "interface"),
            ("Fill", "method"), ("Fill", "method"),
        ],
        # n := i := i++ Left--; len pour fail; < case == != default > else; for case && if
        Function("Fill", 9, 16, 3, 4, 3, 7, 5),
    ),
    "Pot.java": (
        """\
class Pot {
    private int size = 0;
    enum Tea { GREEN, BLACK }
    int fill(Tea tea, int... cups) {
        int left = 3;
        for (int cup : cups) {
            try {
                left = cup > 2 || tea == null ? pour(cup) : 0;
            } catch (Dry error) {
                throw new Spill();
            }
        }
        switch (tea) { case GREEN: left++; break; default: left--; }
        return left;
    }
}
""",
        [
            ("Pot", "class"), ("size", "field"), ("Tea", "enum"), ("GREEN", "constant"), ("BLACK", "constant"),
            ("fill", "method"),
        ],
        # left= left= left++ left--; pour, new Spill; > == ?: catch case default; for || ?: catch case
        Function("fill", 4, 12, 2, 4, 2, 6, 6),
    ),
    "a.js": (
        """\
const limit = 3
class Pot { size = 0; fill(tea) { return tea } }
export const fill = (tea, ...cups) => {
  let left = limit
  cups.forEach((cup) => { left -= cup })
  while (left > 0 && tea) left--
  if (tea === 'green') return new Pot()
  else return tea ?? brew(tea)
}
""",
        [("limit", "variable"), ("Pot", "class"), ("size", "field"), ("fill", "method"), ("fill", "function")],
        # left= -= --; forEach Pot brew; > === else; while && if ??
        Function("fill", 3, 7, 2, 3, 3, 3, 5),
    ),
    "a.ts": (
        """\
interface Tea { name: string; brew(): void }
type Cups = number[]
enum Kind { Green, Black = 2 }
export function fill(tea: Tea, cups?: Cups): number {
  let left: number = 3
  for (const cup of cups!) {
    left = cup != 2 ? left + 1 : pour(cup)
  }
  switch (left) { case 1: break; default: tea.brew() }
  return left
}
""",
        [
            ("Tea", "interface"), ("name", "field"), ("brew", "method"), ("Cups", "type"), ("Kind", "enum"),
            ("Green", "constant"), ("Black", "constant"), ("fill", "function"),
        ],
        # left= left=; pour brew; != ?: case default; for ?: case
        Function("fill", 4, 8, 2, 2, 2, 4, 4),
    ),
    "a.c": (
        """\
#define LIMIT 3
struct pot { int size; char *name; };
typedef struct pot *pot_t;
enum tea { GREEN, BLACK };
static int total[LIMIT] = { 0 };
static char **fill(struct pot *p, int cups)
{
	int left = LIMIT, i;
	for (i = 0; i < cups; i++) {
		if (!p || i == 2)
			goto out;
		else
			left += pour(p);
	}
	switch (left) { case 1: return 0; default: break; }
out:
	return left ? p->name : brew();
}
int empty(void) { return 0; }
""",
        [
            ("LIMIT", "macro"), ("pot", "struct"), ("size", "field"), ("name", "field"), ("pot_t", "type"),
            ("tea", "enum"), ("GREEN", "constant"), ("BLACK", "constant"), ("total", "variable"),
            ("fill", "function"), ("empty", "function"),
        ],
        # left= i= i++ +=; goto pour brew; < == else case default ?:; for if || case ?:
        Function("fill", 6, 13, 2, 4, 3, 6, 6),
    ),
    "a.cpp": (
        """\
namespace tea {
class Pot { public: int size; int fill(int cups) { return cups; } ~Pot() {} };
using Cups = int;
template <class T> T &Pot::pour(T &cup, const Pot &from) {
    auto left = from.size;
    for (auto &one : cup) {
        try { left = one >= 2 ? brew(one) : 0; } catch (...) { delete new Pot(); }
    }
    return cup;
}
}
""",
        [
            ("tea", "module"), ("Pot", "class"), ("size", "field"), ("fill", "method"), ("~Pot", "method"),
            ("Cups", "type"), ("pour", "method"),
        ],
        # left= left=; brew new; >= ?: catch; for ?: catch
        Function("pour", 4, 7, 2, 2, 2, 3, 4),
    ),
    "a.rs": (
        """\
pub const LIMIT: u8 = 3;
pub struct Pot { size: u8 }
pub trait Fill { fn top(&self); }
enum Tea { Green, Black }
impl Pot {
    fn fill(&mut self, tea: Tea, cups: &[u8]) -> Result<u8, Dry> {
        let mut left = LIMIT;
        for cup in cups {
            if *cup == 2 && left > 0 { left -= 1; } else { self.pour(*cup)?; }
        }
        match tea { Tea::Green => self.size = 1, Tea::Black => println!("black") }
        Ok(left)
    }
}
fn main() {}
""",
        [
            ("LIMIT", "constant"), ("Pot", "struct"), ("size", "field"), ("Fill", "interface"), ("top", "method"),
            ("Tea", "enum"), ("Green", "constant"), ("Black", "constant"), ("fill", "method"), ("main", "function"),
        ],
        # let -= size=; pour println! Ok; == > else ? and two arms; for if && ? and two arms
        Function("fill", 6, 8, 3, 3, 3, 6, 7),
    ),
}  # fmt: skip
