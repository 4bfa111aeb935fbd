"""`zoo.draw_paths`: an arrow for each input that an output reads, and no other."""

import re
import xml.etree.ElementTree as ElementTree

import keras
from support.every import assert_refused

import zoo
from zoo import layers

SVG = "{http://www.w3.org/2000/svg}"


def built(layer):
    layer.build(*[(None, None, 3)] * (2 if isinstance(layer, layers.BaseAttention) else 1))
    return layer


def arrows(layer, length=5):
    """Returns the arrows to outputs, (output, input), and those from output to output."""
    drawing = ElementTree.fromstring(zoo.draw_paths({"layer": built(layer)}, length))
    places = sorted({float(circle.get("cx")) for circle in drawing.iter(f"{SVG}circle")})
    ends = [re.findall(r"[\d.]+", line.get("points")) for line in drawing.iter(f"{SVG}polyline")]
    lines = [tuple(map(float, end)) for end in ends]

    def place(x):
        return min(range(len(places)), key=lambda number: abs(places[number] - x))

    upward = {(place(x), place(start)) for start, bottom, x, top in lines if bottom > top}
    across = [(place(start), place(x)) for start, bottom, x, top in lines if bottom == top]
    assert len(lines) == len(upward) + len(across)
    return upward, across


def test_what_each_output_reads():
    every = {(output, place) for output in range(5) for place in range(5)}
    convolution = keras.layers.Conv1D(7, kernel_size=3, padding="same")
    assert arrows(convolution) == ({pair for pair in every if abs(pair[0] - pair[1]) <= 1}, [])
    causal = keras.layers.Conv1D(7, kernel_size=2, padding="causal")
    assert arrows(causal) == ({pair for pair in every if 0 <= pair[0] - pair[1] <= 1}, [])
    for attention in (layers.MultiHeadAttention(num_heads=2, key_dim=5), layers.DotAttention()):
        assert arrows(attention) == (every, [])
    window = layers.SlidingWindowAttention(num_heads=2, key_dim=5, window=1)
    assert arrows(window)[0] == {pair for pair in every if abs(pair[0] - pair[1]) <= 1}


def test_a_recurrence_reads_its_input_and_the_output_before():
    diagonal = {(place, place) for place in range(5)}
    assert arrows(keras.layers.GRU(7, return_sequences=True)) == (diagonal, [(0, 1), (1, 2), (2, 3), (3, 4)])
    backwards = keras.layers.LSTM(7, return_sequences=True, go_backwards=True)
    assert arrows(backwards) == (diagonal, [(4, 3), (3, 2), (2, 1), (1, 0)])


def test_steps_and_paths_are_those_of_the_cost():
    three = {
        "convolution": built(keras.layers.Conv1D(7, kernel_size=3, padding="same")),
        "recurrence": built(keras.layers.SimpleRNN(7, return_sequences=True)),
        "attention": built(layers.SelfAttention(units=7)),
    }
    drawing = ElementTree.fromstring(zoo.draw_paths(three, length=11))
    words = [element.text for element in drawing.iter(f"{SVG}text")]
    assert words[1:] == [
        "n = 11",
        *("convolution", "1 in sequence, longest path 4"),
        *("recurrence", "11 in sequence, longest path 11"),
        *("attention", "1 in sequence, longest path 1"),
    ]


def test_errors():
    dense = built(keras.layers.Dense(7))
    both = built(keras.layers.Bidirectional(keras.layers.GRU(7, return_sequences=True)))
    assert_refused(
        [
            (lambda: zoo.draw_paths({}, 5), r"layers.*\{\}"),
            (lambda: zoo.draw_paths(dense, 5), "layers.*Dense"),
            (lambda: zoo.draw_paths({"layer": dense}, 0), "length=0"),
            (lambda: zoo.draw_paths({"layer": keras.layers.Dense(7)}, 5), "not built"),
            (lambda: zoo.draw_paths({"layer": both}, 5), "forward_layer"),
            (lambda: zoo.draw_paths({"layer": built(keras.layers.GlobalMaxPooling1D())}, 5), r"sequence.*\(6, 3\)"),
        ]
    )
