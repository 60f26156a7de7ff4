"""The data pipeline of the trainer: a text or the shards of a store enter, a rank's inputs and targets leave.

Prefetch, cache, transfer, preprocess: four stages in threads of their own, started after the fork. What is trained on
is decided by `DataOrder` alone, so that a resumed run consumes exactly the samples that an uninterrupted one does.
"""

from everstep.trainer.data.batch import Batch
from everstep.trainer.data.corpus import Corpus, read_corpus
from everstep.trainer.data.halt import DataError
from everstep.trainer.data.order import DataOrder
from everstep.trainer.data.pipeline import DataPipeline, Sample, Share, Stage
from everstep.trainer.data.position import Position
from everstep.trainer.data.shard import Catalog
from everstep.trainer.data.source import Source, open_source
from everstep.trainer.data.timing import StageTiming

__all__ = [
    "Batch",
    "Catalog",
    "Corpus",
    "DataError",
    "DataOrder",
    "DataPipeline",
    "Position",
    "Sample",
    "Share",
    "Source",
    "Stage",
    "StageTiming",
    "open_source",
    "read_corpus",
]
