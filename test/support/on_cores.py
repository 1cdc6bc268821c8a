"""An evaluator of tensors on the virtual cores, without a card or a driver: the workbench runs each launch of a
compiled graph.
"""

import numpy as np

from ringup.compiler.compile import compile_graph
from ringup.compiler.graph.index import bounds, evaluate
from ringup.compiler.schedule.signature import of_graph
from ringup.silicon.shader import program, workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

# By processor. Few waves take less time on the reference than a translation.
ENGINES = {
    "gfx1100": Interpreter(), "gfx1151": Translator(target="gfx1151"), "gfx1201": Translator(target="gfx1201"),
    "gfx942": Translator(target="gfx942"), "gfx950": Translator(target="gfx950"),
}  # fmt: skip


class Cores:
    """Evaluates on cores in strict mode. `tuning` chooses shapes; `graph` is the last graph."""

    # That of cores which no test has chosen. Under `--fuzz` tests run with both.
    target = "gfx1100"

    def __init__(self, tuning=None, target=None):
        self.tuning, self.engine, self.graph = tuning, ENGINES[target or self.target], None

    def evaluate(self, nodes, sizes):
        graph = self._compile(nodes)
        buffers = [self._data(node, sizes) for node in of_graph(nodes)[1]]
        outputs = [np.full(self._bytes(one, sizes), 0xA5, np.uint8) for one in graph.outputs]
        arena = np.full(max(graph.arena_bytes, 1), 0x5A, np.uint8)
        self._load()
        for launch in graph.launches:
            places = {"buffer": buffers, "output": outputs}
            memory = [
                arena[slot.at :] if slot.kind == "arena" else places[slot.kind][slot.at][slot.offset_bytes :]
                for slot in launch.memory
            ]
            groups = tuple(evaluate(one, sizes) for one in launch.groups)
            arguments = [*memory, *(sizes[name] for name, _ in launch.sizes)]
            self._run(launch, arguments, groups)
        return [
            (buffers if one.slot.kind == "buffer" else outputs)[one.slot.at][: self._bytes(one, sizes)]
            for one in graph.outputs
        ]

    def _compile(self, nodes):
        self.graph = compile_graph(nodes, self.engine.target, tuning=self.tuning)
        return self.graph

    def _load(self):
        self._code = program.load(self.graph.code_object())

    def _run(self, launch, arguments, groups):
        size = (launch.binary.group_size, 1, 1)
        workbench.run(self.engine, self._code, launch.binary.name, arguments, groups=groups, group_size=size)

    @staticmethod
    def _data(node, sizes):
        data = node.arg.data
        if data is None:
            return np.zeros(bounds(node.size)[1] * node.dtype.size_bytes, np.uint8)
        return np.frombuffer(bytearray(data.read() if hasattr(data, "read") else data), np.uint8)

    @staticmethod
    def _bytes(output, sizes):
        found = output.dtype.size_bytes
        for size in output.shape:
            found *= evaluate(size, sizes)
        return found
