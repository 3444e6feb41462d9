const ACTION_MAX = 128;

/**
 * The action that policies use for a tool: the tool's name in upper case, with words separated by `_`. A
 * change of case separates words, accents are dropped, `.` and `:` stay, and each run of other characters
 * becomes one `_`, but is dropped at either end. Longer actions are cut at 128 characters. `deleteAuditLog`,
 * `delete-audit-log` and `Delete audit log` are all `DELETE_AUDIT_LOG`, so the same policy applies to each
 * spelling. Null if the result has no letter A–Z and no digit, as for a Cyrillic name.
 */
export function actionOf(tool: string): string | null {
  const name = tool.normalize('NFKD').replace(/\p{M}+/gu, '');
  // Separates words by case, except in a name that is all upper case.
  const separated = /[a-z]/.test(name)
    ? name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    : name;
  const action = separated
    .toUpperCase()
    .replace(/[^A-Z0-9.:]+/g, '_')
    .slice(0, ACTION_MAX)
    .replace(/^_+|_+$/g, '');
  return /[A-Z0-9]/.test(action) ? action : null;
}
