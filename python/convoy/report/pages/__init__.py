"""Reports as pages: one file of HTML each, which needs no network and nothing beside it.

``content.py`` says what is on a page, as data; ``page.py`` puts it into the template.  The rest is the
page's own: ``page.html``, ``page.css``, the scripts, and dagre, which lays out the graph (npm's
``@dagrejs/dagre`` 3.1.3, under the licence beside it).
"""
