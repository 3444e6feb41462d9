import type { OpenApiExamples } from './types.js';

/** Named examples as OpenAPI has them. */
export function valuesOf(values: Record<string, unknown>): OpenApiExamples {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
}
