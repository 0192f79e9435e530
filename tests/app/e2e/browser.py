"""A reader with a browser: opens pages of a dashboard, notes everything that goes wrong on the way, takes pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, Request, Response, expect

from fedguard.app.views import pages

#: Streamlit looks for its server below the path of a page before it looks at the root: these two are not there.
PROBES = re.compile(rf"/({'|'.join(pages())})/_stcore/(health|host-config)")

#: The script has run, everything it drew has come, and stayed for a quarter of a second.
IDLE = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    const busy = !app || app.dataset.testScriptState !== 'notRunning'
        || app.dataset.testConnectionState !== 'CONNECTED'
        || document.querySelector('[data-testid=stSkeleton], [data-testid=stSpinner], [data-stale=true]')
        || [...document.querySelectorAll('[data-testid=stVegaLiteChart]')].some(one => one.offsetParent && !one.querySelector('svg, canvas'));
    if (busy) { window.idleSince = null; return false; }
    window.idleSince ??= performance.now();
    return performance.now() - window.idleSince > 250;
}"""

#: Remembers from now on whether the script has run again.
LISTEN = """() => {
    window.ranAgain = false;
    window.listensSince = performance.now();
    const heard = changes => { window.ranAgain ||= changes.some(one => one.oldValue !== 'notRunning'); };
    new MutationObserver(heard).observe(document.querySelector('[data-testid=stApp]'),
        { attributeFilter: ['data-test-script-state'], attributeOldValue: true });
}"""

#: It has; or it did so too quickly to be seen, on a machine that is busy otherwise.
RAN = "() => window.ranAgain || performance.now() - window.listensSince > 5000"

#: What the browser does where a reader comes back to an address: nothing is loaded anew.
COME_BACK = "address => { history.pushState({}, '', address); dispatchEvent(new PopStateEvent('popstate')); }"

#: Text that ends beyond the right edge of the window without a scroll bar of its own. (Charts may: they keep their size.)
OVERFLOWING = """() => {
    const scrolls = one => one && one.dataset?.testid !== 'stMain'
        && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
    const all = document.querySelectorAll('[data-testid=stMain] :is(h1, h2, h3, p, li, label, button, pre, a, td, th)');
    return [...all]
        .filter(one => one.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(one))
        .map(one => one.textContent);
}"""

#: Text with less contrast to its ground than asked for, by the formula of WCAG 2.2; controls that are switched off are exempt.
#: Tables are drawn on a canvas, and their text cannot be asked: it has the colors of the captions and of the page.
FAINT = """least => {
    const pixel = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const rgba = color => {
        pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = color; pixel.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
    };
    const over = (top, under) => under.map((value, at) => at == 3 ? 1 : top[at] * top[3] + value * (1 - top[3]));
    const luminance = color => color.slice(0, 3).map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = one => {
        if (!one) return [255, 255, 255, 1];
        if (one.dataset.testid === 'stSliderThumbValue') return ground(one.parentElement.parentElement);  // stands above its thumb
        const own = rgba(getComputedStyle(one).backgroundColor);
        return own[3] === 1 ? own : over(own, ground(one.parentElement));
    };
    const square = (one, box) => {  // what a number in a chart stands on
        let under = ground(one.closest('svg').parentElement);
        for (const mark of one.closest('svg').querySelectorAll('path')) {
            const its = mark.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            if (!/^M[^A-Za-z]*h[^A-Za-z]*v[^A-Za-z]*h[^A-Za-z]*(v[^A-Za-z]*)?Z$/.test(mark.getAttribute('d'))) continue;  // Vega's rectangles
            if (!(its.left < x && x < its.right && its.top < y && y < its.bottom)) continue;
            const fill = rgba(getComputedStyle(mark).fill);
            fill[3] *= Number(getComputedStyle(mark).fillOpacity) * Number(getComputedStyle(mark).opacity);
            under = over(fill, under);
        }
        return under;
    };
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const one = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
        const box = one.getBoundingClientRect(), style = getComputedStyle(one);
        if (!/[\\p{L}\\p{N}]/u.test(text) || !box.width || !box.height || style.visibility === 'hidden' || one.closest('style, script, title, canvas,'
            + '[disabled], [aria-disabled=true], [role=slider], [data-testid=stIconMaterial], [data-testid=stHeader], .vega-bindings')) continue;
        const drawn = one.closest('svg');
        const under = drawn ? square(one, box) : ground(one);
        const ink = rgba(drawn ? style.fill : style.color);
        if (drawn && one.getAttribute('opacity') === '0') continue;
        for (let part = one; part; part = part.parentElement) ink[3] *= Number(getComputedStyle(part).opacity);
        if (ink[3] === 0) continue;
        const [a, b] = [luminance(over(ink, under)), luminance(under)].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < least) found.add(`${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
    }
    return [...found];
}"""

#: Roles of what a reader acts on.
WIDGETS = {
    "button",
    "link",
    "textbox",
    "combobox",
    "checkbox",
    "radio",
    "slider",
    "spinbutton",
    "tab",
    "switch",
    "searchbox",
}


class Reader:
    """One visitor in a browser session of their own.

    Args:
        page: of Playwright.
        address: of the dashboard: ``http://localhost:8501``.
        shots: the folder for pictures.
    """

    def __init__(self, page: Page, address: str, shots: Path) -> None:
        self.page, self.address, self.shots = page, address, shots
        self.problems: list[str] = []
        page.on("console", self._console)
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.problems.append(f"error in the page: {error}"))
        page.on("request", self._request)
        page.on("websocket", lambda socket: self._stays_here(socket.url))
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def open(self, page: str = "", /, **query: str) -> Reader:
        """Open a page by its address."""
        self.page.goto(self._address_of(page, query))
        return self.idle()

    def come_back(self, page: str, /, **query: str) -> Reader:
        """Go to a page from another, as by Back: the server draws it, and nothing is loaded anew, which takes seconds."""
        if self.page.url == "about:blank":
            return self.open(page, **query)
        self.page.evaluate(LISTEN)
        self.page.evaluate(COME_BACK, self._address_of(page, query))
        self.page.wait_for_function(RAN)
        return self.idle()

    def _address_of(self, page: str, query: dict[str, str]) -> str:
        path = "" if page == "overview" else page
        return f"{self.address}/{path}" + (f"?{urlencode(query)}" if query else "")

    def idle(self) -> Reader:
        """Wait until the page is drawn; it must not have ended in an exception."""
        self.page.wait_for_function(IDLE, timeout=60_000)
        box = self.page.get_by_test_id("stException")
        assert not box.count(), box.first.inner_text()
        return self

    def shows(self, title: str) -> Reader:
        """Wait for a page by its title, which the window has; its heading may be an answer instead."""
        expect(self.page).to_have_title(f"{title} · FedGuard", timeout=15_000)
        expect(self.page.get_by_role("heading", level=1)).to_be_visible(timeout=15_000)
        return self.idle()

    def choose(self, label: str, option: str) -> Reader:
        """Choose from a selectbox."""
        self.page.evaluate(LISTEN)
        box = self.box(label)
        box.scroll_into_view_if_needed()  # the list closes where its box moves
        self.page.wait_for_timeout(300)
        box.click()
        self.page.get_by_role("option", name=option, exact=True).click()
        self.page.wait_for_function(RAN)
        return self.idle()

    def box(self, label: str) -> Locator:
        """The input of a selectbox."""
        return self.page.get_by_role("combobox", name=re.compile(rf"(^|\. |, ){re.escape(label)}(\.|,|$)")).first

    @property
    def main(self) -> Locator:
        return self.page.get_by_test_id("stMain")

    def text(self) -> str:
        """All that can be read beside the sidebar."""
        return self.main.inner_text()

    def charts(self) -> Locator:
        return self.page.get_by_test_id("stVegaLiteChart")

    def shot(self, name: str) -> Path:
        """A picture of the whole page, however long."""
        size = self.page.viewport_size
        assert size is not None
        height = self.page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
        self.page.set_viewport_size({"width": size["width"], "height": max(size["height"], min(height + 20, 8000))})
        self.idle()
        path = self.shots / f"{name}.png"
        self.page.screenshot(path=path)
        self.page.set_viewport_size(size)
        return path

    def overflowing(self) -> list[str]:
        """What cannot be read in this window without scrolling sideways."""
        return list(self.page.evaluate(OVERFLOWING))

    def faint(self, least: float = 4.5) -> list[str]:
        """Text with a contrast below the least for body text by WCAG 2.2, level AA."""
        return list(self.page.evaluate(FAINT, least))

    def nameless(self) -> list[str]:
        """Buttons and inputs that a screen reader cannot name."""
        session = self.page.context.new_cdp_session(self.page)
        tree: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
        session.detach()
        return [
            str(node)
            for node in tree
            if not node["ignored"]
            and node["role"]["value"] in WIDGETS
            and not (node.get("name") or {}).get("value", "").strip()
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not PROBES.fullmatch(urlsplit(message.location["url"]).path):
            self.problems.append(f"console: {message.text} ({message.location['url']})")

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"a script ran: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        self._stays_here(request.url)

    def _stays_here(self, url: str) -> None:
        """No request leaves the machine."""
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.address).netloc:
            self.problems.append(f"a request to another host: {url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the reader went on before it came
            self.problems.append(f"failed: {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and not PROBES.fullmatch(urlsplit(response.url).path):
            self.problems.append(f"{response.status}: {response.url}")
