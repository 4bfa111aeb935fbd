"""What `export/README.md` shows is what one gets."""

import re
from pathlib import Path

import zoo
from export import client

README = Path(client.__file__).parents[1] / "README.md"


def test_the_classifier_of_the_example_answers_as_it_says():
    ((text, label),) = re.findall(r'client\.classify\(\["(.*?)"\]\)  # ([\w.]+);', README.read_text(encoding="utf-8"))
    (answer,) = zoo.load("preset:senses_self_attention_classifier").classify([text])
    assert answer.label == label and answer.probabilities.max() > 0.9
