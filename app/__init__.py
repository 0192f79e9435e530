"""The dashboard: `fedguard dashboard`. It reads records and writes none.

main.py     the sidebar and the navigation
views/      one page to a file, and the table of them all (not `pages/`, a name that Streamlit takes for itself)
here.py     where the reader is, and links from page to page
data.py     cached reads
charts/     rows to charts, without side effects; the report draws with them too
"""
