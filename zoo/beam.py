"""Apache Beam, which the extra `beam` brings, for the commands that can run on it."""

import contextlib
import io
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.errors import InputError
from zoo.extras import install_command

if TYPE_CHECKING:
    import apache_beam


def check_beam() -> None:
    """Raises InputError if Beam is not installed."""
    logging.disable(logging.WARNING)  # It complains about parts of itself that are not installed.
    try:
        import apache_beam  # noqa: F401
    except ImportError as error:
        raise InputError(f"Apache Beam is not installed: {install_command('beam')}.") from error
    finally:
        logging.disable(logging.NOTSET)


def make_pipeline(beam_flags: Sequence[str]) -> "apache_beam.Pipeline":
    """Returns an empty pipeline that Beam's flags describe; raises InputError if Beam is missing, or refuses them."""
    check_beam()
    import apache_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            options = PipelineOptions(list(beam_flags))
            options.get_all_options()  # Otherwise its parser only reads them when the pipeline runs.
            return apache_beam.Pipeline(options=options)
    except SystemExit as error:  # Beam's own parser, which also prints the usage of hundreds of flags.
        reason = errors.getvalue().strip().rpartition("error: ")[2]
        raise InputError(f"Apache Beam refuses its flags: {reason}.") from error
    except (ValueError, ImportError, AttributeError) as error:  # No such runner, or one that lacks options.
        raise InputError(f"Apache Beam refuses its flags: {error}") from error
