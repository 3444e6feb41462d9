import { inspect } from 'node:util';

/**
 * Replaces control characters: foreign text must not move the cursor or colour an operator's
 * terminal.
 */
export const plain = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\ufffd');

function cell(value: unknown): string {
  if (value === null || value === undefined) return '-';
  if (value instanceof Date) return value.toISOString();
  const text =
    typeof value === 'string'
      ? value
      : Array.isArray(value)
        ? value.map(cell).join(',')
        : typeof value === 'object'
          ? JSON.stringify(value)
          : inspect(value);
  return plain(text);
}

/** Formats rows as an aligned table with a header. */
export function table(rows: readonly object[]): string {
  const [first] = rows;
  if (first === undefined) return 'none\n';
  const names = Object.keys(first);
  const lines = [names, ...rows.map((row) => Object.values(row).map(cell))];
  const widths = names.map((_, column) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0)),
  );
  return lines
    .map((line) => line.map((text, column) => text.padEnd(widths[column] ?? 0)).join('  '))
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}

/** Formats a document for a terminal: a list as a table, an object as one line per member. */
export function readable(document: unknown): string {
  if (Array.isArray(document)) return table(document as object[]);
  if (typeof document !== 'object' || document === null) return `${cell(document)}\n`;
  const members = Object.entries(document);
  const width = Math.max(0, ...members.map(([name]) => name.length));
  return members.map(([name, value]) => `${name.padEnd(width)}  ${cell(value)}\n`).join('');
}
