"""Ready-made tools for whoever is on call. You declare here which clusters and namespaces are meant, never the model.

handrail tools list --tools examples/toolbox/ops.py
handrail call top_pods '{"namespace": "shop"}' --tools examples/toolbox/ops.py
handrail chat --tools examples/toolbox/ops.py --model openai:NAME
"""

from handrail_toolbox.kubernetes import Kubernetes

# Six tools over two namespaces of one cluster; the model need not name the only context. A restart always asks.
kubernetes = Kubernetes(contexts=["staging"], namespaces=["shop", "billing"])
