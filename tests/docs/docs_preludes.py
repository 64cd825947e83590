"""What a page's blocks presuppose and do not say: a model, inputs, files, by the page's name."""

NETWORK = """
import numpy as np
import torch
import edgewise

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
)
model.add_module("classifier", torch.nn.Linear(8, 4))
model.eval()
inputs = example_inputs = (torch.rand(1, 3, 16, 16),)
batches = [(torch.rand(1, 3, 16, 16),) for _ in range(4)]
x = example_inputs[0].numpy()
"""

SAVED = f"""{NETWORK}
exported = torch.export.export(model, inputs)
from edgewise.backends.xnnpack import XnnpackPartitioner
edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
edge.to_executorch().save("model.pte")
np.save("x.npy", x)
"""

STATE = """

class Step(torch.nn.Module):
    def __init__(self, cache):
        super().__init__()
        self.register_buffer("cache", cache)

    def forward(self, x):
        self.cache[:, 0] = x
        return self.cache.sum(1)

step = Step(torch.zeros(2, 4))
a = torch.export.export(step, (torch.ones(2),))
b = torch.export.export(step, (torch.ones(2),))
"""

TOSA = f"""{NETWORK}
from pathlib import Path
from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer
from edgewise.quantize import quantize

spec = EthosUCompileSpec("ethos-u55-128").dump_intermediate_artifacts_to("artifacts")
quantized = quantize(model, inputs, "int8", EthosUQuantizer, calibration=batches)
edgewise.to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
tosa_flatbuffer = next(Path("artifacts").rglob("*.tosa")).read_bytes()
x = np.zeros((1, 3, 16, 16), np.int8)
"""

PLAN = """
from pathlib import Path

Path("zoo.py").write_text(
    "import torch\\n"
    "def tiny():\\n"
    "    return torch.nn.Linear(4, 2).eval(), (torch.rand(1, 4),)\\n"
)
Path("plan.yaml").write_text("models: {tiny: zoo.py:tiny}\\nlatency: false\\n")
"""

FOLDER = """
from pathlib import Path
import transformers

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film", "."]
Path("folder").mkdir()
Path("folder/vocab.txt").write_text("\\n".join(words) + "\\n")
transformers.BertTokenizer(vocab="folder/vocab.txt").save_pretrained("folder")
config = transformers.BertConfig(
    vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=16,
)
transformers.BertForSequenceClassification(config).save_pretrained("folder")
"""

PRELUDES = {
    "README.md": NETWORK,
    "quantization.md": NETWORK,
    "report.md": NETWORK,
    "scale.md": NETWORK + PLAN,
    "runtime.md": SAVED + STATE,
    "ethosu.md": NETWORK,
    "huggingface.md": FOLDER,
    "ethosu_simulator.md": TOSA,
    "microcontrollers.md": NETWORK,
    "neutron.md": NETWORK,
}
