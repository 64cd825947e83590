"""From what is given on the command line to arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewise.cli.errors import CliError
from edgewise.cli.images import PREPROCESSINGS, holds_images, preprocessing, read_image
from edgewise.cli.inputs import InputSpec, batches

RAW = PREPROCESSINGS["raw"]
IMAGE = InputSpec("Tensor", "float32", (1, 3, 4, 4))
IDS = InputSpec("Tensor", "int64", (1, 8))


@pytest.mark.parametrize(
    ("shape", "count"),
    [((1, 3, 4, 4), 1), ((3, 4, 4), 1), ((5, 3, 4, 4), 5), ((5, 1, 3, 4, 4), 5)],
)
def test_samples(tmp_path: Path, shape: tuple[int, ...], count: int) -> None:
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    np.save(tmp_path / "x.npy", array)
    found = batches([str(tmp_path / "x.npy")], [IMAGE], RAW)
    assert len(found) == count
    joined = np.concatenate([batch.values[0] for batch in found])
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined.ravel(), array.ravel())


def test_several_inputs(tmp_path: Path) -> None:
    ids, images = np.ones((2, 8), np.int32), np.zeros((1, 3, 4, 4), np.float32)
    np.savez(tmp_path / "both.npz", ids=ids, images=images)
    np.save(tmp_path / "ids.npy", ids)
    for sources in ([str(tmp_path / "both.npz")], [str(tmp_path / "ids.npy"), "random"]):
        found = batches(sources, [IDS, IMAGE], RAW)
        assert [batch.values[0].dtype for batch in found] == [np.int64] * 2
        assert all(batch.values[1].shape == (1, 3, 4, 4) for batch in found)


def test_random() -> None:
    specs = [InputSpec("Tensor", "float32", (8, 4), is_dynamic=True), InputSpec("int"), IDS]
    one, same, other = (batches(None, specs, RAW, seed=s)[0].values for s in (3, 3, 4))
    np.testing.assert_array_equal(one[0], same[0])
    assert (one[0] != other[0]).any()
    assert one[1] == 1
    assert set(np.unique(one[2])) <= {0, 1}
    small = batches(None, specs[:1], RAW, shapes=["2x4"])[0].values[0]
    assert small.shape == (2, 4)


def _picture(path: Path, pixels: np.ndarray) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def test_pictures(tmp_path: Path) -> None:
    """A picture of the model's own size is not resampled: each value is known."""
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3))
    path = _picture(tmp_path / "a.png", pixels)
    wanted = {
        "raw": pixels,
        "unit": pixels / 255,
        "symmetric": (pixels / 255 - 0.5) / 0.5,
    }
    for name, values in wanted.items():
        got = read_image(path, (1, 3, 4, 4), "float32", preprocessing(name))
        np.testing.assert_allclose(got[0].transpose(1, 2, 0), values, atol=1e-6)
        last = read_image(path, (1, 4, 4, 3), "float32", preprocessing(name))
        np.testing.assert_array_equal(last[0].transpose(2, 0, 1), got[0])
    how = preprocessing("unit", mean="0.1,0.2,0.3", std="2")
    got = read_image(path, (3, 4, 4), "float32", how)
    wanted_first = (pixels[0, 0] / 255 - [0.1, 0.2, 0.3]) / 2
    np.testing.assert_allclose(got[:, 0, 0], wanted_first, atol=1e-6)
    assert read_image(path, (1, 3, 4, 4), "uint8", RAW).dtype == np.uint8
    assert read_image(path, (1, 1, 4, 4), "float32", preprocessing("imagenet")).shape[1] == 1


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_pictures_are_upright(orientation: int, tmp_path: Path) -> None:
    """Cameras keep their sensor's rows, and tell how they were held."""
    image = pytest.importorskip("PIL.Image")
    from edgewise.pictures import array

    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    turns = {1: 0, 3: 2, 6: 3, 8: 1}[orientation]
    wanted = np.rot90(pixels, turns)
    path, exif = tmp_path / "a.png", image.Exif()
    exif[0x0112] = orientation
    image.fromarray(pixels).save(path, exif=exif)
    height, width, _ = wanted.shape
    got = read_image(path, (1, height, width, 3), "float32", RAW)
    np.testing.assert_array_equal(got[0], wanted)
    for given in (path, path.read_bytes(), image.open(path)):
        np.testing.assert_array_equal(array(given, {})[0].transpose(1, 2, 0), wanted)


def test_geometry(tmp_path: Path) -> None:
    """Left third red, the rest blue: the middle is blue, stretched it keeps the thirds."""
    pixels = np.zeros((12, 36, 3), np.uint8)
    pixels[:, :12, 0], pixels[:, 12:, 2] = 255, 255
    path = _picture(tmp_path / "wide.png", pixels)
    middle = read_image(path, (3, 12, 12), "float32", RAW)
    assert (middle[0] == 0).all()
    assert (middle[2] == 255).all()
    stretched = read_image(path, (3, 12, 12), "float32", preprocessing("raw", stretch=True))
    assert (stretched[0, :, :3] == 255).all()
    assert (stretched[2, :, 5:] == 255).all()


def test_folder(tmp_path: Path) -> None:
    for name in "ba":
        _picture(tmp_path / f"{name}.png", np.full((4, 4, 3), ord(name)))
    np.save(tmp_path / "c.npy", np.full((1, 3, 4, 4), ord("c"), np.float32))
    (tmp_path / "readme.txt").write_text("not an input")
    found = batches([str(tmp_path)], [IMAGE], RAW)
    assert [int(batch.values[0].mean()) for batch in found] == [97, 98, 99]


@pytest.mark.parametrize(
    ("sources", "specs", "message"),
    [
        (["nope.npy"], [IMAGE], "no such file, and not 'random': nope.npy"),
        (["five.npy"], [IMAGE], "must hold float32 1x3x4x4, or several along a first dimension"),
        (["five.npy"], [IDS], "must hold int64; got float64; try array.astype('int64')"),
        (["bad.npy"], [IMAGE], "must be a file of numpy.save or numpy.savez"),
        (["bad.png"], [IMAGE], "must be a picture that Pillow reads"),
        (["good.png"], [IDS], "a picture is for an input of 1x3xHxW"),
        (["bad.txt"], [IMAGE], "must be a .npy or .npz file, a picture, a folder, or 'random'"),
        (["empty"], [IMAGE], "must hold .npy or .npz files or pictures; got none"),
        (["five.npy"], [IMAGE, IDS], "the model takes 2 inputs (float32 1x3x4x4, int64 1x8)"),
        (["one.npz"], [IMAGE, IDS], "must hold an array for each of 2 inputs, in order; got 1: x"),
        (["2.5"], [InputSpec("int")], "input 0 must be of the kind int; got '2.5'"),
    ],
)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sources: list[str],
    specs: list[InputSpec],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("five.npy", np.zeros((5, 5)))
    np.savez("one.npz", x=np.zeros(3))
    for name in ("bad.npy", "bad.png", "bad.txt"):
        Path(name).write_text("no such thing")
    _picture(tmp_path / "good.png", np.zeros((4, 4, 3)))
    Path("empty").mkdir()
    with pytest.raises(CliError) as raised:
        batches(sources, specs, RAW)
    assert message in str(raised.value)


def test_a_folder_of_arrays_holds_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "x.npz").touch()
    assert not holds_images(tmp_path)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "x.PNG").touch()
    assert holds_images(tmp_path)
    assert holds_images(tmp_path / "more" / "x.PNG")
