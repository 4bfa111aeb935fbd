"""Apache Beam, from the extra `beam`, for the commands that can run on it."""

import contextlib
import io
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.errors import InputError
from zoo.runtime.extras import install_command

if TYPE_CHECKING:
    import apache_beam


def check_beam() -> None:
    """Raises InputError if Beam is not installed."""
    logging.disable(logging.WARNING)  # Beam warns about its optional dependencies.
    try:
        import apache_beam  # noqa: F401
    except ImportError as error:
        raise InputError(f"Apache Beam is not installed: {install_command('beam')}.") from error
    finally:
        logging.disable(logging.NOTSET)


def make_pipeline(beam_flags: Sequence[str]) -> "apache_beam.Pipeline":
    """Returns an empty pipeline with Beam's flags; raises InputError if Beam is missing or rejects the flags."""
    check_beam()
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            options = PipelineOptions(list(beam_flags))
            options.get_all_options()  # parses the flags now, not when the pipeline runs
            return apache_beam.Pipeline(options=options)
    except SystemExit as error:  # raised by Beam's parser, after printing the usage of hundreds of flags
        reason = errors.getvalue().strip().rpartition("error: ")[2]
        raise InputError(f"Apache Beam rejects its flags: {reason}.") from error
    except (ValueError, ImportError, AttributeError) as error:  # an unknown runner, or missing options
        raise InputError(f"Apache Beam rejects its flags: {error}") from error
