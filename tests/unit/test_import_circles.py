"""No modules import each other in a circle: imports of types, and of a package by its parts, included."""

import grimp


def circles_of(imports: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules of which each reaches all others (Tarjan's algorithm, without recursion)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found = []
    for root in sorted(imports):
        work = [(root, iter(sorted(imports[root])))] if root not in numbers else []
        while work:
            module, rest = work[-1]
            if module not in numbers:
                numbers[module] = lowest[module] = len(numbers)
                path.append(module)
            for other in rest:
                if other not in numbers:
                    work.append((other, iter(sorted(imports.get(other, ())))))
                    break
                if other in path:
                    lowest[module] = min(lowest[module], numbers[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == numbers[module]:
                    at = path.index(module)
                    if len(path) - at > 1:
                        found.append(set(path[at:]))
                    del path[at:]
    return found


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set()}
    assert circles_of(imports) == [{"a", "b", "c"}]
    assert circles_of({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a", "c"}}) == []


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("livegnn", exclude_type_checking_imports=False, cache_dir=None)
    modules = graph.modules - {"livegnn"}  # its native module counts as the package
    imports = {one: set(graph.find_modules_directly_imported_by(one)) & modules for one in modules}
    assert len(modules) > 300
    assert circles_of(imports) == []
