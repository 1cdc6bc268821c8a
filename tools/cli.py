"""The entry of the `ringup` command, and its subcommands by name. Imports nothing by itself: ctrl-C is heard from its first moment on."""

import sys

COMMANDS = {  # name: (module, help); the order of `ringup --help`
    "list": ("ringup.tools.list_cards", "list the cards that can be opened, and those that cannot with the reason"),
    "doctor": ("ringup.tools.doctor", "look at this machine and say what is fine, what is not and what to do"),
    "setup": ("ringup.tools.setup_host", "show or write the rules that let users reach cards: udev, modules, limits"),
    "up": ("ringup.tools.up", "bring a card up, test its queues and say what it is"),
    "down": ("ringup.tools.down", "bring a card that was left running to rest, and to sleep"),
    "info": ("ringup.tools.info", "say what a card is and how it was found, without starting it"),
    "demo": (
        "ringup.tools.demo",
        "bring a card up, copy, compute, pull its cable, switch it off; leave a trace and a page",
    ),
    "stats": ("ringup.tools.stats", "show what a card does, while another process drives it"),
    "top": ("ringup.tools.top", "the same, live"),
    "regs": ("ringup.tools.regs", "find registers of a chip, decode a value, read one of a card"),
    "mem": ("ringup.tools.mem", "read and write a card's memory"),
    "run": ("ringup.tools.run", "run a kernel of a code object with arguments and files"),
    "bench": ("ringup.tools.bench.command", "measure ringup beside its peers"),
    "trace": ("ringup.tools.trace", "record a run for ui.perfetto.dev, or every access of it; show a recording"),
    "decode": ("ringup.tools.decode", "show the packets of a stream in a file"),
    "firmware": (
        "ringup.tools.firmware",
        "firmware files: which a card needs and whether they are here, what is inside one",
    ),
    "bridge": (
        "ringup.tools.bridge",
        "USB bridges: what one runs, a copy of its flash, its firmware compared and written",
    ),
    "program": ("ringup.tools.program", "show the kernels of a code object"),
    "asm": ("ringup.tools.asm", "assemble shader code: text in LLVM's syntax into a code object"),
    "disasm": ("ringup.tools.disasm", "show a code object's machine code as text that assembles again"),
    "compile": ("ringup.tools.compile", "compile tensors of a Python file for a target, without a card"),
    "explain": ("ringup.tools.explain", "show what became of tensors: schedule, axes, every pass, registers, limits"),
    "tune": ("ringup.tools.tune", "search the shapes that kernels may have for the fastest, on a card or by the model"),
    "headers": ("ringup.tools.headers", "header packages: fetch them, generate facts, check the committed ones"),
    "bind": ("ringup.tools.bind", "give a card to VFIO, with its whole IOMMU group"),
    "unbind": ("ringup.tools.unbind", "give a card back to the kernel's own driver"),
    "reset": ("ringup.tools.reset", "reset a whole card, gently first"),
    "report": ("ringup.tools.report", "say what befell a card that was left, or that another process drives"),
    "serve": ("ringup.tools.serve", "lend virtual devices to a kernel, here or in a virtual machine"),
    "completion": ("ringup.tools.completion", "print a completion script for a shell"),
}
FINE, FAILED, WRONG_USAGE = 0, 1, 2
INTERRUPTED = 130  # what shells report for a program ended by SIGINT


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, the error's own code, 2 for wrong usage, 130 when interrupted.

    1 stands for something wrong with what was looked at, and for an error of the operating system's, such as a full disk under standard output.
    """
    words = sys.argv[1:] if argv is None else argv
    command = next((word for word in words if not word.startswith("-")), None)
    title = f"ringup {command}" if command in COMMANDS else "ringup"
    try:
        from ringup.tools import command_line  # takes longer than many a command runs

        return command_line.run(words, command, title)
    except KeyboardInterrupt:
        print(f"{title}: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
