"""What is done about the C library's memory."""

import ctypes

import keras
import pytest

from training.data.batching import PairBatches
from training.hardware.startup import keep_freed_memory
from training.loop.feed import TrainingFeed

BLOCK = 200_000  # bytes: beyond what TensorFlow leaves to the C library, below what it keeps itself
MANY = 5000  # more than there is room for among what was freed before; never written to
LIBRARY = ctypes.CDLL(None)


class Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]


pytestmark = pytest.mark.skipif(not hasattr(LIBRARY, "mallinfo2"), reason="the C library is not glibc 2.33 or later")


def are_mapped():
    """Returns whether blocks are mapped each by itself, to be given back to the system when they are freed."""
    LIBRARY.mallinfo2.restype, LIBRARY.malloc.restype = Usage, ctypes.c_void_p
    LIBRARY.malloc.argtypes, LIBRARY.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    before = LIBRARY.mallinfo2().hblks
    blocks = [LIBRARY.malloc(BLOCK) for _ in range(MANY)]
    after = LIBRARY.mallinfo2().hblks
    for block in blocks:
        LIBRARY.free(block)
    return after > before


@pytest.fixture
def given_back():
    """Settings as TensorFlow makes them; they are ours again behind the test."""
    LIBRARY.mallopt(-3, 128 << 10)
    LIBRARY.malloc_trim(0)
    yield
    keep_freed_memory()


def test_freed_blocks_are_kept(given_back):
    assert are_mapped()
    keep_freed_memory()
    assert not are_mapped()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads batches as TensorFlow does")
def test_freed_blocks_are_kept_while_batches_are_read(given_back):
    assert are_mapped()
    batches = PairBatches([[4, 5], [6]], [[7, 2], [8, 9, 2]], batch_tokens=100)
    TrainingFeed(batches).begin(0)
    assert not are_mapped()
