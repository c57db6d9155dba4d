"""Ready-made tools over databases: questions in SQL, for reading only, and a support desk that writes.

handrail call get_user '{"user_id": "U1"}' --tools examples/toolbox/databases.py
handrail call query '{"database": "desk", "sql": "SELECT * FROM desk_users"}' --tools examples/toolbox/databases.py
handrail chat --tools examples/toolbox/databases.py --model openai:NAME
"""

import os

from handrail_toolbox.desk import SupportDesk
from handrail_toolbox.sql import Databases

# get_user, list_tickets, create_ticket, close_ticket, update_plan, redeem_promo, list_orders, place_order
desk = SupportDesk("sqlite:///desk.db")
desk.desk.fill("users", [{"user_id": "U1", "name": "Ada", "plan": "free"}])  # a desk begins empty; tools add no users

# list_tables, describe_table and query; the model knows a database by its name, never where it is.
addresses = {"desk": "sqlite:///desk.db"}
if "WAREHOUSE" in os.environ:  # such as postgresql://analyst@db/warehouse, the password in PGPASSFILE
    addresses["warehouse"] = os.environ["WAREHOUSE"]
databases = Databases(addresses, timeout_s=10)
