"""A browser without JavaScript: pages read, links followed, forms filled and sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

# Elements that have no end.
_ALONE = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "rect", "path", "circle"})


@dataclass(slots=True)
class Form:
    """A form: where it goes, and its fields as they stand."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class Page(HTMLParser):
    """What a page holds: its text, links, forms, ids, and the elements that were open at its end."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(convert_charrefs=True)
        self.status = answer.status_code
        self.url = answer.url
        self.source = answer.text
        self.words: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.forms: list[Form] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(answer.text)

    @property
    def text(self) -> str:
        """All text, with single blanks."""
        return " ".join(" ".join(self.words).split())

    def form(self, action: str) -> Form:
        """The one form that goes there."""
        [found] = [form for form in self.forms if form.action == action]
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= set(said)
        self.ids += [said["id"]] if "id" in said else []
        self.links += [said["href"]] if tag == "a" and "href" in said else []
        self.loads += [said[name] for name in ("src", "href") if tag != "a" and name in said]
        if tag == "form":
            self.forms.append(Form(said.get("action", ""), said.get("method", "get")))
        elif tag == "input" and self.forms and said.get("type") != "checkbox" and "name" in said:
            self.forms[-1].fields.append((said["name"], said.get("value", "")))
        elif tag == "button" and self.forms and "name" in said:
            self.forms[-1].buttons.append((said["name"], said.get("value", "")))
        if tag not in _ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _ALONE:
            assert self.open, f"</{tag}> ends nothing"
            assert self.open.pop() == tag, f"</{tag}> ends something else"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


async def read(client: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    """A page, after redirects."""
    answer = await client.get(path, follow_redirects=True)
    page = Page(answer)
    assert page.status == status, page.text or answer.text
    assert page.open == []
    return page


async def confirm(client: httpx.AsyncClient, page: Page, action: str, /, **filled: str) -> Page:
    """Send a form whose act is confirmed, and confirm it with the reason, if one is given; where it leads."""
    reason = filled.pop("reason", "")
    asked = await send(client, page, action, 200, **filled)
    assert ("confirmed", "yes") in asked.form(action).fields, asked.text
    return await send(client, asked, action, 200, reason=reason)


async def send(client: httpx.AsyncClient, page: Page, action: str, status: int = 200, /, **filled: str) -> Page:
    """Fill a form of a page and send it; where it leads. A box that is ticked is a field as any other."""
    fields = dict(page.form(action).fields) | filled
    headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    answer = await client.post(action, data=fields, headers=headers, follow_redirects=True)
    found = Page(answer)
    assert found.status == status, found.text or answer.text
    return found
