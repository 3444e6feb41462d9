import type { Components } from './components.js';
import type { JsonObject } from './json.js';

/** What the makers of the document's parts share. */
export interface Making {
  components: Components;
  /** An example of a schema. */
  sample: (schema: JsonObject) => unknown;
  /** Examples of text, by media type. */
  texts: Record<string, string>;
}
