"""Training data made of recorded runs.

export = TrainingExport("openai", tools=tools)
for row in export_runs(store, export): ...
print(export.summary)
"""

from handrail_openmodels.training.examples import Example as Example
from handrail_openmodels.training.examples import Pair as Pair
from handrail_openmodels.training.exporting import Mistakes as Mistakes
from handrail_openmodels.training.exporting import Summary as Summary
from handrail_openmodels.training.exporting import TrainingExport as TrainingExport
from handrail_openmodels.training.exporting import export_runs as export_runs
from handrail_openmodels.training.forms import read_pair as read_pair
from handrail_openmodels.training.forms import read_row as read_row
from handrail_openmodels.training.forms import write_pair as write_pair
from handrail_openmodels.training.forms import write_row as write_row
from handrail_openmodels.training.selection import Selection as Selection
