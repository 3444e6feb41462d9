/** The first difference of two JSON documents, as a pointer with both values; null when equal. */
export function difference(expected: unknown, found: unknown, pointer = ''): string | null {
  if (Object.is(expected, found)) return null;
  if (isObject(expected) && isObject(found) && Array.isArray(expected) === Array.isArray(found)) {
    for (const name of new Set([...Object.keys(expected), ...Object.keys(found)])) {
      const inside = difference(expected[name], found[name], `${pointer}/${name}`);
      if (inside !== null) return inside;
    }
    return null;
  }
  return `${brief(expected)} at ${pointer || 'the top'}, found ${brief(found)}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function brief(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 120);
}
