"""Does a text, or the beginning of one, follow a grammar that a request asked for? Needs no engine and no tokenizer."""

from parity.comparator.grammar.judge import Answer as Answer
from parity.comparator.grammar.judge import Spec as Spec
from parity.comparator.grammar.judge import goes_on as goes_on
from parity.comparator.grammar.judge import judge as judge
from parity.comparator.grammar.judge import spec_of as spec_of
from parity.comparator.grammar.judge import takes as takes
