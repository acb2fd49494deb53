"""Make `report.html`, the page that shows a dataset from one file, without server or network."""
