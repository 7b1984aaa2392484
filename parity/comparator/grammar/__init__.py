"""Does a text, or the beginning of one, follow a grammar that a request asked for? Needs no engine and no tokenizer."""

from parity.comparator.grammar.engines import has_edges as has_edges
from parity.comparator.grammar.engines import in_reasoning as in_reasoning
from parity.comparator.grammar.engines import reasoning_parser as reasoning_parser
from parity.comparator.grammar.fate import Fate as Fate
from parity.comparator.grammar.fate import fate as fate
from parity.comparator.grammar.fate import fate_of_end as fate_of_end
from parity.comparator.grammar.judge import Answer as Answer
from parity.comparator.grammar.judge import Spec as Spec
from parity.comparator.grammar.judge import goes_on as goes_on
from parity.comparator.grammar.judge import judge as judge
from parity.comparator.grammar.judge import spec_of as spec_of
