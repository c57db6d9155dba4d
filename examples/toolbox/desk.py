"""Ready-made tools for a desk: you declare here what each may reach, never the model.

handrail tools list --tools examples/toolbox/desk.py
handrail call search_files '{"text": "refund"}' --tools examples/toolbox/desk.py
handrail chat --tools examples/toolbox/desk.py --model openai:NAME
"""

from pathlib import Path

from handrail_toolbox.documents import Documents
from handrail_toolbox.files import Files
from handrail_toolbox.mail import SendEmail, Server
from handrail_toolbox.run_python import RunPython

HERE = Path(__file__).parent
ORDERS = b"order,euros\nA-1,49\nA-2,480\n"

# read_file, list_files, search_files and, because of `writing`, write_file, which asks and can be undone.
files = Files(roots=[HERE], writing=True)

# search_documents and read_document over the pages of handrail itself.
documents = Documents(HERE.parents[1] / "docs")

# send_email: from one address, to one domain, after somebody has agreed. With dry_run it connects to nobody.
mail = SendEmail(
    Server("smtp.example.com", user="bot@example.com"),  # the password is in the environment, SMTP_PASSWORD
    sender="bot@example.com",
    recipients=["@example.com"],
    dry_run=True,
)

# run_python: isolated, or NOT_ISOLATED. The code finds orders.csv in its folder.
code = RunPython(files={"orders.csv": ORDERS}, timeout_s=10)
