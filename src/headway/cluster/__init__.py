"""A model split over nodes, run on torch.distributed, with every node watched.

    with Cluster.from_path("cluster.toml") as cluster:
        cluster.probe()
        cluster.plan()
        cluster.launch()
        print(cluster.drive([[1, 2, 3]]).table())

What runs a model needs the extra ``cluster``; its report types need NumPy alone.
"""
