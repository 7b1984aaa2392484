"""Every key of the interface, once: the key bindings, the help screen and the command palette read this."""

from __future__ import annotations

from typing import Final

from parity.messages import message
from parity.tui.command import Command

APP: Final = (
    Command("question_mark,f1", "help", message("tui.key.help", "Show all keys"), message("tui.bar.help", "Help")),
    Command(
        "q", "back", message("tui.key.back", "Back, or quit from the list of runs"), message("tui.bar.back", "Back")
    ),
    Command("ctrl+p", "command_palette", message("tui.key.search_commands", "Search all commands"), moves=True),
    Command("ctrl+t", "toggle_theme", message("tui.key.theme", "Switch between the light and the dark theme")),
    Command("ctrl+x", "stop_writing", message("tui.key.stop_writing", "Stop a change of many findings")),
    Command("ctrl+l", "reload", message("tui.key.reload", "Read the database again")),
    Command("ctrl+q", "quit", message("tui.key.quit", "Quit")),
)

MOVE: Final = (
    Command("down,j", "move(1)", message("tui.key.down", "Down"), moves=True),
    Command("up,k", "move(-1)", message("tui.key.up", "Up"), moves=True),
    Command("pagedown,ctrl+d,ctrl+f", "page(1)", message("tui.key.page_down", "Page down"), moves=True),
    Command("pageup,ctrl+u,ctrl+b", "page(-1)", message("tui.key.page_up", "Page up"), moves=True),
    Command("home,g", "first", message("tui.key.first", "First"), moves=True),
    Command("end,G", "last", message("tui.key.last", "Last"), moves=True),
)

OPEN_COMPLETIONS: Final = Command(
    "C",
    "completions",
    message("tui.key.completions", "List all completions, identical and unjudged ones too"),
    message("tui.bar.completions", "Completions"),
)

RUNS: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_run", "Show the findings of the run"),
        message("tui.bar.findings", "Findings"),
    ),
    Command(
        "y",
        "copy_command",
        message("tui.key.copy_command", "Copy the command that made the run"),
        message("tui.bar.copy_command", "Copy command"),
    ),
    Command(
        "r",
        "start",
        message("tui.key.start_again", "Start it again, or finish it where it was interrupted"),
        message("tui.bar.start", "Start"),
    ),
    Command(
        "slash",
        "search",
        message("tui.key.search_runs_by", "Filter by text in id, name, tag, model, command and verdict"),
        message("tui.bar.search", "Search"),
    ),
    Command(
        "space",
        "select",
        message("tui.key.select_run", "Mark the run, to compare it with the one under the cursor"),
        message("tui.bar.select", "Select"),
    ),
    Command(
        "equals_sign",
        "compare",
        message("tui.key.compare_runs", "Compare the marked run with the one under the cursor"),
        message("tui.bar.compare", "Compare"),
    ),
    Command(
        "i",
        "inbox",
        message("tui.key.inbox", "Inbox: findings of all runs that nobody has decided about"),
        message("tui.bar.inbox", "Inbox"),
    ),
    Command("f", "filter", message("tui.key.filter_runs", "Filter by verdict, tag and model")),
    Command("s", "sort", message("tui.key.sort", "Sort by the next column"), message("tui.bar.sort", "Sort")),
    Command("S", "reverse", message("tui.key.reverse", "Reverse the order")),
    Command(
        "a",
        "about",
        message("tui.key.about", "About the run: arms, notes, settings and environments that differ, versions"),
        message("tui.bar.about", "About"),
    ),
    Command(
        "w",
        "watch",
        message("tui.key.watch", "Watch the run: how far and how fast each arm is, first findings, the engine's log"),
        message("tui.bar.watch", "Watch"),
    ),
    Command("n", "name", message("tui.key.name", "Name the run, and tag it")),
    Command("B", "known_bugs", message("tui.key.known_bugs", "Known bugs: the rules, and what each takes")),
    Command("escape", "clear", message("tui.key.clear_runs_all", "Clear the mark, then the text and the filter")),
    OPEN_COMPLETIONS,
    Command(
        "D,delete",
        "delete",
        message("tui.key.delete", "Delete the run from the database"),
        message("tui.bar.delete", "Delete"),
    ),
)

TRIAGE: Final = (
    Command(
        "c",
        "mark('confirmed')",
        message("tui.key.confirmed", "Mark as confirmed"),
        message("tui.bar.confirm", "Confirm"),
    ),
    Command("b", "mark('benign')", message("tui.key.benign", "Mark as benign"), message("tui.bar.benign", "Benign")),
    Command(
        "t",
        "triage",
        message("tui.key.triage", "Triage: state, label, note, link, history"),
        message("tui.bar.triage", "Triage"),
    ),
    Command(
        "u",
        "undo",
        message("tui.key.undo_here", "Undo the last change of triage in this run"),
        message("tui.bar.undo", "Undo"),
    ),
    Command("U,ctrl+r", "redo", message("tui.key.redo", "Redo what was undone")),
    Command("w", "report", message("tui.key.report", "Write the bug report"), message("tui.bar.report", "Report")),
    Command(
        "r",
        "start",
        message("tui.key.start", "Start a reduce, a bisect, the run again"),
        message("tui.bar.start", "Start"),
    ),
    Command(
        "B", "known", message("tui.key.known", "Mark as a known bug, with its link"), message("tui.bar.known", "Known")
    ),
    Command("R", "mark('reported')", message("tui.key.reported", "Mark as reported")),
    Command("X", "mark('fixed')", message("tui.key.fixed", "Mark as fixed")),
    Command("N", "mark('new')", message("tui.key.new", "Mark as new again")),
    Command("o", "original", message("tui.key.original", "Remember this finding as the original of duplicates")),
    Command("d", "duplicate", message("tui.key.duplicate", "Mark as a duplicate of the remembered original")),
    Command(
        "y",
        "copy_command",
        message("tui.key.copy_reproduces", "Copy the command that reproduces the run"),
        message("tui.bar.copy_command", "Copy command"),
    ),
    Command(
        "e", "export", message("tui.key.export", "Export the selection as JSON"), message("tui.bar.export", "Export")
    ),
)

COMPLETIONS: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_completion", "Look at the completion"),
        message("tui.bar.open", "Open"),
    ),
    Command(
        "f", "filter", message("tui.key.filter_classes", "Filter by class and arm"), message("tui.bar.filter", "Filter")
    ),
    Command(
        "slash",
        "search",
        message("tui.key.search_request", "Filter by text in the request's name"),
        message("tui.bar.search", "Search"),
    ),
    Command("s", "sort", message("tui.key.sort", "Sort by the next column"), message("tui.bar.sort", "Sort")),
    Command("S", "reverse", message("tui.key.reverse", "Reverse the order")),
    Command("escape", "clear", message("tui.key.clear_filter", "Clear the text and the filter")),
)

FINDINGS: Final = (
    Command(
        "enter,l,right", "open", message("tui.key.open_finding", "Look at the finding"), message("tui.bar.open", "Open")
    ),
    Command(
        "z",
        "near_ties",
        message("tui.key.near_ties", "Show or hide near-ties"),
        message("tui.bar.near_ties", "Near-ties"),
    ),
    Command(
        "Z", "follow_ups", message("tui.key.follow_ups", "Show or hide what follows the first fault of a completion")
    ),
    Command(
        "f",
        "filter",
        message("tui.key.filter", "Filter by kind, severity, arm and state"),
        message("tui.bar.filter", "Filter"),
    ),
    Command(
        "slash",
        "search",
        message("tui.key.search", "Filter by text in request, prompt, label and note"),
        message("tui.bar.search", "Search"),
    ),
    Command("s", "sort", message("tui.key.sort", "Sort by the next column"), message("tui.bar.sort", "Sort")),
    Command(
        "space",
        "select",
        message("tui.key.select", "Select or unselect, and go on"),
        message("tui.bar.select", "Select"),
    ),
    Command("S", "reverse", message("tui.key.reverse", "Reverse the order")),
    Command(
        "i",
        "next_new",
        message("tui.key.next_new", "Next one that nobody has decided about"),
        message("tui.bar.next_new", "Next new"),
    ),
    Command(
        "equals_sign",
        "groups",
        message("tui.key.groups", "Group findings that are alike"),
        message("tui.bar.groups", "Groups"),
    ),
    Command("P", "preview", message("tui.key.preview", "Show or hide the finding beside the list (120 columns)")),
    OPEN_COMPLETIONS,
    Command("v", "select_range", message("tui.key.select_range", "Select from the last selected one to here")),
    Command("A", "select_all", message("tui.key.select_all", "Select everything that passes the filter")),
    Command("escape", "clear", message("tui.key.clear", "Clear the selection, then the text, then the filter")),
    *TRIAGE,
)

FINDING: Final = (
    Command("down,j", "down(1)", message("tui.key.line_down", "One line down"), moves=True),
    Command("up,k", "down(-1)", message("tui.key.line_up", "One line up"), moves=True),
    Command("left,h", "move(-1)", message("tui.key.token_back", "One token back"), moves=True),
    Command("right,l", "move(1)", message("tui.key.token_on", "One token on"), moves=True),
    Command("n", "step(1)", message("tui.key.next", "Next finding of the list"), message("tui.bar.next", "Next")),
    Command(
        "p",
        "step(-1)",
        message("tui.key.previous", "Previous finding of the list"),
        message("tui.bar.previous", "Previous"),
    ),
    Command(
        "i",
        "next_new",
        message("tui.key.next_new", "Next one that nobody has decided about"),
        message("tui.bar.next_new", "Next new"),
    ),
    Command("f", "within(1)", message("tui.key.next_within", "Next finding in this completion")),
    Command("F", "within(-1)", message("tui.key.previous_within", "Previous finding in this completion")),
    Command(
        "a", "other_arm", message("tui.key.other_arm", "Same request in the next arm"), message("tui.bar.arm", "Arm")
    ),
    Command("right_square_bracket", "neighbour(1)", message("tui.key.next_row", "Next row of the batch")),
    Command("left_square_bracket", "neighbour(-1)", message("tui.key.previous_row", "Previous row of the batch")),
    Command("full_stop", "first_difference", message("tui.key.first_difference", "Go to the first token that differs")),
    Command("greater_than_sign", "difference(1)", message("tui.key.next_difference", "Next stretch that differs")),
    Command(
        "less_than_sign", "difference(-1)", message("tui.key.previous_difference", "Previous stretch that differs")
    ),
    Command(
        "m", "mode", message("tui.key.mode", "Switch between tokens and plain text"), message("tui.bar.text", "Text")
    ),
    Command("1", "panel('logprobs')", message("tui.key.logprobs", "Top tokens at the cursor")),
    Command(
        "2", "panel('origin')", message("tui.key.origin", "Where the tokens come from: donor, period, what was lost")
    ),
    Command("3", "panel('prompt')", message("tui.key.prompt", "Prompt, sampling, arms, accepted drafts")),
    Command("4", "panel('triage')", message("tui.key.history", "Triage and its history")),
    Command("5", "panel('evidence')", message("tui.key.evidence", "Evidence as JSON")),
    Command("6", "panel('steps')", message("tui.key.steps", "The engine's steps: rows, moves, drafts, violations")),
    Command("tab", "next_panel", message("tui.key.next_panel", "Next panel"), message("tui.bar.panel", "Panel")),
    Command("slash", "seek", message("tui.key.seek", "Search in tokens and text"), message("tui.bar.search", "Search")),
    Command("colon", "go_to", message("tui.key.go_to", "Go to the token with a number")),
    Command("Y", "copy_menu", message("tui.key.copy_menu", "Copy token, text, prompt, fingerprint or command")),
    Command("z", "zoom", message("tui.key.zoom", "Zoom the panel, and back"), message("tui.bar.zoom", "Zoom")),
    Command("Z", "hide", message("tui.key.hide", "Hide the panel, and show it again")),
    Command("plus", "resize(2)", message("tui.key.larger", "A larger panel")),
    Command("minus", "resize(-2)", message("tui.key.smaller", "A smaller panel")),
    Command("J", "scroll_panel(1)", message("tui.key.scroll_down", "Scroll the panel down")),
    Command("K", "scroll_panel(-1)", message("tui.key.scroll_up", "Scroll the panel up")),
    *TRIAGE,
)

COMPARING: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_finding", "Look at the finding"),
        message("tui.bar.open", "Open"),
    ),
    Command(
        "z",
        "same",
        message("tui.key.same", "Show or hide what stayed the same"),
        message("tui.bar.same", "Same"),
    ),
)

GROUP_KEYS: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_group", "Look at its findings"),
        message("tui.bar.open", "Open"),
    ),
    Command(
        "i",
        "next_new",
        message("tui.key.next_new", "Next one that nobody has decided about"),
        message("tui.bar.next_new", "Next new"),
    ),
    *TRIAGE,
)

LIVE: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_run", "Show the findings of the run"),
        message("tui.bar.findings", "Findings"),
    ),
    Command("tab", "next_log", message("tui.key.next_log", "The log of the next arm"), message("tui.bar.log", "Log")),
    OPEN_COMPLETIONS,
)

KNOWN_BUGS: Final = (
    Command(
        "enter,l,right",
        "open",
        message("tui.key.open_rule", "Look at what it took of the newest run"),
        message("tui.bar.open", "Open"),
    ),
    Command("y", "copy_link", message("tui.key.copy_link", "Copy the link"), message("tui.bar.copy_link", "Copy link")),
    Command(
        "D,delete",
        "delete",
        message("tui.key.delete_rule", "Forget the rule: what it took is new again"),
        message("tui.bar.delete", "Delete"),
    ),
)

GROUPS: Final = {
    "runs": (message("tui.group.runs", "Runs"), RUNS),
    "completions": (message("tui.group.completions", "Completions"), COMPLETIONS),
    "findings": (message("tui.group.findings", "Findings"), FINDINGS),
    "comparing": (message("tui.group.comparing", "Two runs"), COMPARING),
    "groups": (message("tui.group.groups", "Groups"), GROUP_KEYS),
    "live": (message("tui.group.live", "A run at work"), LIVE),
    "known_bugs": (message("tui.group.known_bugs", "Known bugs"), KNOWN_BUGS),
    "finding": (message("tui.group.finding", "One finding"), FINDING),
}
