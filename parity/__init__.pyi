from parity.api import Plot as Plot
from parity.api import Result as Result
from parity.api import compare as compare
from parity.capture import read_capture as read_capture
from parity.capture import read_scores as read_scores
from parity.capture import write_capture as write_capture
from parity.errors import ParityError as ParityError
from parity.records import Capture as Capture
from parity.records import Completion as Completion
from parity.records import Finding as Finding
from parity.records import Header as Header
from parity.records import Key as Key
from parity.records import Kind as Kind
from parity.records import Severity as Severity
from parity.records import TopLogprobs as TopLogprobs
from parity.records import Verdict as Verdict
from parity.report.write import write_report as write_report
from parity.store import Store as Store

__version__: str
