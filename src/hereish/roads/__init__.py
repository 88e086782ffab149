"""Road networks, read from files.

OpenStreetMap's files (.osm.pbf, .osm) need `pip install 'hereish[roads]'`; GeoJSON and CSV do not.
"""

from hereish.roads.building import graph_from_lines
from hereish.roads.graph import RoadGraph
from hereish.roads.reading import load_roads, read_roads, save_roads

__all__ = [
    "RoadGraph",
    "graph_from_lines",
    "load_roads",
    "read_roads",
    "save_roads",
]
