/** A JSON object that is put together member by member. */
export type JsonObject = Record<string, unknown>;

export const COMPONENT = '#/components/schemas/';

/** The component's name in `{"$ref": "#/components/schemas/Name"}`; null for anything else. */
export function componentOf(schema: unknown): string | null {
  if (schema === null || typeof schema !== 'object') return null;
  const { $ref } = schema as { $ref?: unknown };
  return typeof $ref === 'string' && $ref.startsWith(COMPONENT)
    ? $ref.slice(COMPONENT.length)
    : null;
}
