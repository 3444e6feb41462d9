import type { Components } from './components.js';
import type { ApiDescription } from './description.js';
import type { JsonObject } from './types.js';
import type { OperationSpec } from './operation-spec.js';

/** What the makers of the document's parts share. */
export interface Making<Spec extends OperationSpec> {
  api: ApiDescription<Spec>;
  components: Components;
  /** An example of a schema. */
  sample: (schema: JsonObject) => unknown;
}
