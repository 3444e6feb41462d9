import type { Verdict } from './follow.js';

/** Rows of text in columns as wide as their widest cell. */
function columns(rows: string[][]): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows
    .map((row) =>
      `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd(),
    )
    .join('\n');
}

export function verdictTable(verdicts: readonly Verdict[]): string {
  return columns([
    ['action', 'receipt', 'public verdict', 'after', 'proof'],
    ...verdicts.map(({ admitted, status, afterMs }) => [
      admitted.action.action,
      admitted.receipt.status,
      status ?? 'none',
      `${(afterMs / 1000).toFixed(1)} s`,
      admitted.receipt.registry_proof_id,
    ]),
  ]);
}
