"""Training data made of recorded runs.

export = TrainingExport("openai", tools=tools)
for row in export_runs(store, export): ...
print(export.summary)
"""

from handrail.training.examples import Example as Example
from handrail.training.examples import Pair as Pair
from handrail.training.exporting import Mistakes as Mistakes
from handrail.training.exporting import Summary as Summary
from handrail.training.exporting import TrainingExport as TrainingExport
from handrail.training.exporting import export_runs as export_runs
from handrail.training.forms import read_pair as read_pair
from handrail.training.forms import read_row as read_row
from handrail.training.forms import write_pair as write_pair
from handrail.training.forms import write_row as write_row
from handrail.training.selection import Selection as Selection
