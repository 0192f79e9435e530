"""The dashboard: `fedguard dashboard`. It reads records and writes none.

main.py     the sidebar and the navigation; style.py, what Streamlit's theme cannot set
views/      one page to a file, and the table of them all (not `pages/`, a name that Streamlit takes for itself)
blocks.py   blocks of pages (`fedguard.bench.pages`) on the screen
here.py     where the reader is, and links from page to page; address.py, the reader's choices in the address
data.py     cached reads
lab/        the parts of the Lab
report/     one run as one HTML file
site.py     runs as linked HTML files: every view that a reader can choose
charts/     rows to charts, without side effects; the report draws with them too
"""
