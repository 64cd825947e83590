"""The example models: sizes, layer names, export, and outputs that depend on the input.

Parameter counts and names are facts of torchvision's and Hugging Face's models: with them, their
checkpoints load with strict=True.
"""

import pytest
import torch

from examples.models import (
    BERT_BASE,
    MODELS,
    Bert,
    BertConfig,
    mobilenet_v2,
    randomize_batch_norm,
    resnet18,
    vit_b_16,
)
from examples.models.vit import VisionTransformer

PARAMETERS = {
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vit_b_16": 86_567_656,
    "autoencoder": 267_928,  # 269,992 in MLPerf Tiny, which counts statistics of norms, too
}

# Number of entries in the state dict, then some of them with their shapes.
STATE: dict[str, tuple[int, dict[str, tuple[int, ...]]]] = {
    "mobilenet_v2": (
        314,
        {
            "features.0.0.weight": (32, 3, 3, 3),
            "features.0.1.running_mean": (32,),
            "features.1.conv.0.0.weight": (32, 1, 3, 3),
            "features.1.conv.1.weight": (16, 32, 1, 1),
            "features.1.conv.2.bias": (16,),
            "features.2.conv.0.0.weight": (96, 16, 1, 1),
            "features.2.conv.1.0.weight": (96, 1, 3, 3),
            "features.2.conv.2.weight": (24, 96, 1, 1),
            "features.17.conv.3.num_batches_tracked": (),
            "features.18.0.weight": (1280, 320, 1, 1),
            "classifier.1.weight": (1000, 1280),
        },
    ),
    "mobilenet_v3_small": (
        244,
        {
            "features.0.0.weight": (16, 3, 3, 3),
            "features.1.block.0.0.weight": (16, 1, 3, 3),
            "features.1.block.1.fc1.weight": (8, 16, 1, 1),
            "features.1.block.2.1.weight": (16,),
            "features.4.block.1.0.weight": (96, 1, 5, 5),
            "features.4.block.2.fc1.bias": (24,),
            "features.11.block.2.fc2.weight": (576, 144, 1, 1),
            "features.11.block.3.0.weight": (96, 576, 1, 1),
            "features.12.0.weight": (576, 96, 1, 1),
            "classifier.0.weight": (1024, 576),
            "classifier.3.bias": (1000,),
        },
    ),
    "mobilenet_v3_large": (
        312,
        {
            "features.4.block.2.fc1.weight": (24, 72, 1, 1),
            "features.15.block.2.fc2.weight": (960, 240, 1, 1),
            "features.16.0.weight": (960, 160, 1, 1),
            "classifier.0.weight": (1280, 960),
        },
    ),
    "resnet18": (
        122,
        {
            "conv1.weight": (64, 3, 7, 7),
            "bn1.running_var": (64,),
            "layer1.0.conv1.weight": (64, 64, 3, 3),
            "layer2.0.downsample.0.weight": (128, 64, 1, 1),
            "layer2.0.downsample.1.bias": (128,),
            "layer4.1.bn2.weight": (512,),
            "fc.weight": (1000, 512),
        },
    ),
    "resnet50": (
        320,
        {
            "layer1.0.conv3.weight": (256, 64, 1, 1),
            "layer1.0.downsample.0.weight": (256, 64, 1, 1),
            "layer3.5.conv2.weight": (256, 256, 3, 3),
            "layer4.2.bn3.running_mean": (2048,),
            "fc.bias": (1000,),
        },
    ),
    "vit_b_16": (
        152,
        {
            "class_token": (1, 1, 768),
            "conv_proj.weight": (768, 3, 16, 16),
            "conv_proj.bias": (768,),
            "encoder.pos_embedding": (1, 197, 768),
            "encoder.layers.encoder_layer_0.ln_1.weight": (768,),
            "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": (2304, 768),
            "encoder.layers.encoder_layer_0.self_attention.in_proj_bias": (2304,),
            "encoder.layers.encoder_layer_0.self_attention.out_proj.weight": (768, 768),
            "encoder.layers.encoder_layer_11.ln_2.bias": (768,),
            "encoder.layers.encoder_layer_11.mlp.0.weight": (3072, 768),
            "encoder.layers.encoder_layer_11.mlp.3.bias": (768,),
            "encoder.ln.weight": (768,),
            "heads.head.weight": (1000, 768),
        },
    ),
    "bert_small": (
        39,
        {
            "embeddings.word_embeddings.weight": (1000, 128),
            "embeddings.position_embeddings.weight": (128, 128),
            "embeddings.token_type_embeddings.weight": (2, 128),
            "embeddings.LayerNorm.bias": (128,),
            "encoder.layer.0.attention.self.query.weight": (128, 128),
            "encoder.layer.0.attention.self.value.bias": (128,),
            "encoder.layer.1.attention.output.dense.weight": (128, 128),
            "encoder.layer.1.attention.output.LayerNorm.weight": (128,),
            "encoder.layer.1.intermediate.dense.weight": (512, 128),
            "encoder.layer.1.output.dense.weight": (128, 512),
            "encoder.layer.1.output.LayerNorm.bias": (128,),
            "pooler.dense.weight": (128, 128),
        },
    ),
}

OUTPUTS = {
    "bert_small": [(1, 32, 128), (1, 128)],
    "tiny_mlp": [(1, 4)],
    "tiny_cnn": [(1, 10)],
    "resnet8": [(1, 10)],
    "ds_cnn": [(1, 12)],
    "mobilenet_v1_025": [(1, 2)],
    "autoencoder": [(1, 640)],
}

# The largest model is exported once, by the benchmarks; here a ViT of two layers stands for it.
QUICK = [name for name in MODELS if name != "vit_b_16"]


def on_meta(name: str) -> torch.nn.Module:
    """The model without memory for its weights."""
    with torch.device("meta"):
        return MODELS[name].factory()


def run(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        outputs = model(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name: str) -> None:
    assert sum(p.numel() for p in on_meta(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", STATE)
def test_state_names_and_shapes(name: str) -> None:
    entries, samples = STATE[name]
    state = on_meta(name).state_dict()
    assert len(state) == entries
    assert {key: tuple(state[key].shape) for key in samples if key in state} == samples


def test_bert_base_parameter_count() -> None:
    with torch.device("meta"):
        model = Bert(BERT_BASE)
    assert sum(p.numel() for p in model.parameters()) == 109_482_240


@pytest.mark.parametrize("name", QUICK)
def test_outputs_and_export(name: str) -> None:
    spec = MODELS[name]
    model = spec.build(0)
    inputs = spec.example_inputs(0)
    outputs = run(model, inputs)
    assert [tuple(y.shape) for y in outputs] == OUTPUTS.get(name, [(1, 1000)])

    exported = run(torch.export.export(model, inputs).module(), inputs)
    for got, expected in zip(exported, outputs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_outputs_depend_on_the_input_and_are_of_order_one(name: str) -> None:
    # Otherwise a comparison with eager would pass whatever the layers in between computed.
    spec = MODELS[name]
    model = spec.build(0)
    one, other = run(model, spec.example_inputs(0))[0], run(model, spec.example_inputs(1))[0]
    assert (one - other).norm() > 0.03 * one.norm()
    assert 0.1 < one.abs().max() < 20


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert_small"])
def test_build_is_a_function_of_the_seed(name: str) -> None:
    spec = MODELS[name]
    before = torch.random.get_rng_state()
    one, same, other = spec.build(3).state_dict(), spec.build(3).state_dict(), spec.build(4)
    assert torch.equal(before, torch.random.get_rng_state())
    for key, value in one.items():
        # Measured statistics may round differently from run to run of a threaded convolution.
        torch.testing.assert_close(same[key], value, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(one[key], value) for key, value in other.state_dict().items())


def test_randomized_batch_norm_is_no_identity() -> None:
    model = randomize_batch_norm(resnet18(10).eval(), 0)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 20
    for norm in norms:
        x = torch.ones(1, norm.num_features, 1, 1)
        assert not torch.allclose(norm(x), x, atol=0.05)


def test_other_class_counts() -> None:
    with torch.device("meta"):
        assert mobilenet_v2(10).state_dict()["classifier.1.weight"].shape == (10, 1280)
        assert vit_b_16(10).state_dict()["heads.head.bias"].shape == (10,)


def small_vit() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(
        image=32, patch=8, width=32, depth=2, heads=4, hidden=64, classes=10
    ).eval()


def test_small_vit_exports() -> None:
    model = small_vit()
    x = torch.randn(1, 3, 32, 32)
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x), rtol=1e-4, atol=1e-5)


def test_vit_reads_the_older_names_of_its_mlp() -> None:
    model = small_vit()
    old = {
        key.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): value + 1
        for key, value in model.state_dict().items()
    }
    expected = {key: value + 1 for key, value in model.state_dict().items()}
    assert any("linear_1" in key for key in old)
    model.load_state_dict(old, strict=True)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[key])


def test_vit_refuses_an_image_of_partial_patches() -> None:
    with pytest.raises(ValueError, match=r"\[VisionTransformer\].*try image=224"):
        VisionTransformer(image=230)


def test_bert_ignores_padding() -> None:
    spec = MODELS["bert_small"]
    model = spec.build(0)
    ids, mask, kinds = spec.example_inputs(0)
    changed = torch.where(mask == 0, torch.full_like(ids, 7), ids)
    one, other = run(model, (ids, mask, kinds))[0], run(model, (changed, mask, kinds))[0]
    torch.testing.assert_close(one[mask > 0], other[mask > 0])
    assert not torch.allclose(one[mask == 0], other[mask == 0])


def test_bert_defaults_to_no_padding_and_one_segment() -> None:
    model = MODELS["bert_small"].build(0)
    ids = torch.randint(1, 1000, (2, 8))
    explicit = run(model, (ids, torch.ones_like(ids), torch.zeros_like(ids)))
    for got, expected in zip(run(model, (ids,)), explicit, strict=True):
        torch.testing.assert_close(got, expected)


def test_bert_config_refuses_uneven_heads() -> None:
    with pytest.raises(ValueError, match="multiple of num_attention_heads; got 100 and 3"):
        BertConfig(hidden_size=100, num_attention_heads=3)
