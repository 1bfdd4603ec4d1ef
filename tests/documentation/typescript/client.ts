// A caller written against the types that openapi-typescript makes of docs/openapi.json.
import createClient from "openapi-fetch";
import type { paths } from "./api.ts";

declare const process: { argv: string[] };

const city = createClient<paths>({ baseUrl: process.argv[2] });
const priced = await city.POST("/price", {
  body: { shared: { demand: 0.5, rain: 0.5, event: 0 }, local: { tourists: 0, strike: 0 } },
});
if (!priced.data) throw new Error(priced.error.detail);
const id: string = priced.data.decision_id;
const receipt = await city.POST("/feedback", { body: { decision_id: id, sold: 1 } });
const record = await city.GET("/decisions/{decision_id}", { params: { path: { decision_id: id } } });
const refused = await city.GET("/decisions/{decision_id}", { params: { path: { decision_id: "none" } } });
console.log(
  JSON.stringify({
    price: priced.data.price,
    learned: receipt.data?.learned,
    sold: record.data?.feedback?.sold,
    problem: refused.error?.type,
  }),
);
